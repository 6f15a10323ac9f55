"""Who is stuck where, against what the author states in `blocked:`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.evaluation import CANNOT_COMPUTE
from runner.problems import ScenarioError
from runner.verdict.conduct import GAVE_UP
from runner.verdict.finding import Finding, Witness

if TYPE_CHECKING:
    from runner.forms import PerRank
    from runner.problems import Mark
    from runner.scenario import FinalExpectation
    from runner.trace import Event, RankTrace
    from runner.verdict.case import Case
    from runner.verdict.memory import Memories

STUCK = frozenset({"blocked", "possibly_blocked"})


def judge_blocked(case: Case) -> list[Finding]:
    """Return the findings on ranks that are stuck otherwise than the author states."""
    final = case.final
    if final.blocked is None:
        return []
    found: list[Finding] = []
    static = case.reference and case.prediction.outcome in final.ends
    for rank in range(case.scenario.world_size):
        stated = chosen_text(case.predicted, rank, final.blocked)
        case.compared += 1
        mine = None
        if static:
            mine = _position(case, case.predicted, rank, stated)
        seen = _position(case, case.observed, rank, stated) if case.observed else None
        witness: Witness = "backend"
        if mine:
            witness = "reference" if case.observed and seen is None else "expectation"
        prose = mine or seen
        if prose:
            place = chosen_place(case.predicted, rank, final.blocked)
            found.append(_blocked_finding(final, witness, rank, prose, place))
    return found


def _blocked_finding(
    final: FinalExpectation, witness: Witness, rank: int, prose: str, place: Mark | None = None
) -> Finding:
    whole = final.blocked.mark if final.blocked is not None else None
    return Finding(
        witness=witness,
        code="blocked_differs",
        prose=prose,
        mark=place or whole or final.mark,
        ranks=(rank,),
        name="blocked",
    )


def chosen_text(memories: Memories, rank: int, stated: PerRank[str]) -> str | None:
    """Return the text that a per-rank mapping states for a rank in the end, or None."""
    process = memories.process(rank, memories.final(rank), None, None)
    chosen = process.choose(stated)
    return None if chosen is None else str(chosen)


def chosen_place(memories: Memories, rank: int, stated: PerRank[str]) -> Mark | None:
    """Return the place of the key that selects a rank; of the whole where only `else` does."""
    process = memories.process(rank, memories.final(rank), None, None)
    keys = (selector.mark for selector, _ in stated.branches if process.selects(selector))
    return next(keys, None) or stated.mark


def _position(case: Case, memories: Memories, rank: int, stated: str | None) -> str | None:
    """Return how a rank's position contradicts what is stated, or None."""
    found = memories.rank(rank)
    stuck = _stuck_at(found)
    sure = found is not None and found.ending != "possibly_blocked"
    if stated is None:
        if stuck is None or not sure or not _counts(case, found):
            return None
        if memories is case.observed and _possibly(case, rank, stuck):
            return None
        return f"rank {rank} is blocked in `{stuck.label}`, which `blocked:` does not state"
    if stuck is None:
        ended = found.ending if found else "not there"
        return f"rank {rank} is not blocked (it {_ended(ended)}), you expect it in `{stated}`"
    if not sure and memories is case.predicted:
        return (
            f"rank {rank} is only possibly blocked in `{stuck.label}`: an implementation may let "
            f"it pass, so `blocked:` must not state it"
        )
    if _named(case, memories, rank, stuck, stated):
        return None
    if memories is case.observed and _possibly(case, rank, stuck):
        return None  # it may stand there before it comes to where it stands for sure
    return f"rank {rank} is blocked in `{stuck.label}`, you expect `{stated}`"


def _counts(case: Case, found: RankTrace | None) -> bool:
    """Return whether a rank is blocked: who gave up is, where the end is a deadlock."""
    gave = found is not None and found.ending == "raised"
    return "deadlock" in case.final.ends or not gave


def _ended(ending: str) -> str:
    return {"finished": "takes its last step", "raised": "raises", "died": "dies"}.get(
        ending, f"is {ending}"
    )


def _stuck_at(found: RankTrace | None) -> Event | None:
    if found is None or not found.events:
        return None
    last = found.events[-1]
    if found.ending in STUCK or (found.ending == "raised" and gave_up(found)):
        return last
    return None


def _possibly(case: Case, rank: int, event: Event) -> bool:
    """Return whether a correct backend may leave a rank stuck in this step, though not for sure."""
    predicted = case.predicted.rank(rank)
    if predicted is None:
        return False
    return (
        predicted.ending == "possibly_blocked"
        or (event.index, event.iteration) in predicted.may_block
    )


def _named(case: Case, memories: Memories, rank: int, event: Event, stated: str) -> bool:
    """Return whether the words name the step: its name, its whole label, or the operation."""
    step = case.order.steps.get(event.index)
    if stated == event.label or (step is not None and stated == step.name):
        return True
    operation = step.operation if step is not None else None
    if step is None or operation is None:
        return False
    if stated in {operation.name, *operation.aliases}:
        return True
    # a step with a name of its own may still be called by its label: `send to 1`
    process = memories.process(rank, memories.final(rank), event, None)
    try:
        return stated == operation.label(memories.entry(process, operation, step))
    except (ScenarioError, *CANNOT_COMPUTE):
        return False


def gave_up(rank: RankTrace) -> bool:
    """Return whether a rank ended because it, or its peer, waited no longer."""
    last = rank.events[-1] if rank.events else None
    return bool(last and last.failure and set(last.failure.kinds) & GAVE_UP)
