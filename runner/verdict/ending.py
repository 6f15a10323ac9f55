"""How the scenario ended, against what the author states: outcome, blocked, diagnosis, dies.

Where the reference leaves the outcome open (`Trace.open`), only the run can contradict the author.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.verdict.blocked import chosen_place, chosen_text, gave_up, judge_blocked
from runner.verdict.conduct import CLOCK_ERROR_S
from runner.verdict.finding import Finding, Witness
from runner.verdict.forecasts import explaining
from runner.verdict.wording import ranks_text
from runner.vocabulary import OUTCOMES

if TYPE_CHECKING:
    from runner.problems import Mark
    from runner.trace import Diagnosis, RankTrace, Trace
    from runner.verdict.case import Case
    from runner.verdict.memory import Memories


def judge_ending(case: Case) -> list[Finding]:
    """Return the findings on how the scenario ended."""
    found = [*_outcome(case), *_dies(case), *_within(case)]
    if not found or case.run is None:
        found += judge_blocked(case)
    return found


def judge_diagnoses(case: Case) -> list[Finding]:
    """Return the findings on what the analysis calls the program: static, the same on any run."""
    if not case.reference:
        return []
    stated = set(case.final.diagnoses)
    faults: dict[int, list[Diagnosis]] = {}
    for diagnosis in case.prediction.diagnoses:
        faults.setdefault(diagnosis.finding, []).append(diagnosis)
    found = [
        _undeclared(case, names[0])
        for names in faults.values()
        if not all(diagnosis.optional for diagnosis in names)
        and not any({diagnosis.name, *diagnosis.also} & stated for diagnosis in names)
    ]
    names = {diagnosis.name for diagnosis in case.diagnoses}
    also = {name for diagnosis in case.prediction.diagnoses for name in diagnosis.also}
    found += [
        Finding(
            witness="expectation",
            code="diagnosis_absent",
            prose=f"the program has no {name}; it has {', '.join(sorted(names)) or 'no diagnosis'}",
            mark=case.final.mark,
            name="diagnosis",
        )
        for name in case.final.diagnoses
        if name not in names | also
    ]
    return found


def clauses(prose: str) -> tuple[str, ...]:
    """Return the clauses of a diagnosis's prose, which semicolons part."""
    return tuple(clause.strip() for clause in prose.split(";") if clause.strip())


def _undeclared(case: Case, diagnosis: Diagnosis) -> Finding:
    step = case.order.steps.get(diagnosis.index)
    return Finding(
        witness="expectation",
        code="diagnosis_undeclared",
        prose=f"the program has {diagnosis.name}, which `diagnosis:` does not state",
        because=clauses(diagnosis.prose),
        mark=(step.mark if step else _refused_group(case)) or case.final.mark or case.scenario.mark,
        ranks=diagnosis.ranks,
        index=diagnosis.index,
        iteration=diagnosis.iteration,
        name="diagnosis",
    )


# ---------------------------------------------------------------------------- outcome


def _outcome(case: Case) -> list[Finding]:
    stated, predicted = case.final.ends, case.prediction.outcome
    allowed = {predicted, *(case.prediction.open if case.run is None else case.open)}
    observed = observed_outcome(case)
    case.compared += 1
    if observed is None:
        if not case.reference or allowed.intersection(stated) or case.own_outcome:
            return []
        where = "" if case.prediction is case.general else f" on {case.prediction.backend}"
        told = f"the program's outcome{where} is {predicted}"
        if predicted in {"crash", "error"}:
            told += _because(case.prediction)
        return [_outcome_finding(case, "expectation", told)]
    if observed in stated:
        if observed in allowed or not case.reference or case.own_outcome:
            return []
        text = f"the reference says {predicted}, the run agrees with you: {observed}"
        return [_outcome_finding(case, "reference", text)]
    meant = {case.general.outcome, *case.general.open}
    told = f"the run's outcome is {observed}{_because(case.run) if case.run else ''}"
    if case.reference and observed != predicted and {*stated, observed} <= meant:
        told = f"the semantics leave the outcome open ({' or '.join(sorted(allowed))}); {told}"
    alone: Witness = "expectation" if observed in meant else "backend"
    return [_outcome_finding(case, alone, told)]


def warn_of_open(case: Case) -> None:
    """Warn where the author states no outcome, and another than `completes` stays possible.

    To be asked where nothing else is wrong: a fault that is not stated says more.
    """
    opened = case.prediction.open if case.run is None else case.open
    allowed = {case.prediction.outcome, *opened}
    others = sorted(allowed - {"completes"}, key=OUTCOMES.index)
    if case.final.outcomes or not case.reference or not others:
        return
    listed = ", ".join(["completes", *others])
    told = " or ".join(filter(None, (", ".join(others[:-1]), others[-1])))
    case.warn(
        "outcome_open",
        f"no outcome is stated, and {told} stays possible",
        case.final.mark or case.scenario.mark,
        f"state `outcome: completes`, or `outcome: [{listed}]` where each of them will do",
    )


def _outcome_finding(case: Case, witness: Witness, what: str) -> Finding:
    stated = set(case.final.diagnoses)
    explained = [
        diagnosis.prose
        for diagnosis in case.prediction.diagnoses
        if case.run is None and {diagnosis.name, *diagnosis.also} & stated
    ]
    return Finding(
        witness=witness,
        code="outcome_differs",
        prose=f"{what}; you expect {' or '.join(case.final.ends)}",
        because=clauses(explained[0]) if explained else explaining(case),
        mark=case.final.mark or _ended_at(case) or case.scenario.mark,
        ranks=tuple(r.rank for r in (case.run or case.prediction).ranks if r.ending != "finished"),
        name="outcome",
    )


def observed_outcome(case: Case) -> str | None:
    """Return the run's outcome; None where nothing ran.

    A predicted deadlock that ended because every stuck rank gave up waiting is that deadlock,
    confirmed by the backend's own timeout.
    """
    run = case.run
    if run is None:
        return None
    if run.outcome == "error" and "deadlock" in case.final.ends and "error" not in case.final.ends:
        raised = [rank for rank in run.ranks if rank.ending == "raised"]
        if raised and all(gave_up(rank) for rank in raised):
            return "deadlock"
    return run.outcome


def _ended_at(case: Case) -> Mark | None:
    """Return the place of the first step at which a rank that died or raised came to its end."""
    ended = [rank for rank in case.prediction.ranks if rank.ending in {"died", "raised"}]
    indexes = [rank.events[-1].index for rank in ended if rank.events]
    step = case.order.steps.get(min(indexes, default=-1))
    return step.mark if step else _refused_group(case)


def _refused_group(case: Case) -> Mark | None:
    """Return the place of the group that torch refuses before step 1, if there is one."""
    refused = (each for each in case.predicted.plan.creations if each.refused is not None)
    return next((creation.spec.mark for creation in refused), None)


def _because(trace: Trace) -> str:
    """Say which ranks did not finish, and why: first who died; what is alike, once."""
    ends: dict[str, list[int]] = {}
    for rank in sorted(trace.ranks, key=lambda rank: rank.ending != "died"):
        how = _end(rank)
        if how is not None:
            ends.setdefault(how, []).append(rank.rank)
    shown = [
        f"{ranks_text(ranks)} {'are' if len(ranks) > 1 else 'is'} {how}"
        if how.startswith("blocked")
        else f"{ranks_text(ranks)} {how}"
        for how, ranks in ends.items()
    ]
    left = sum(len(ranks) for ranks in list(ends.values())[4:])
    shown = shown[:4] + ([f"{left} more ranks" if left > 1 else "one more rank"] if left else [])
    return f" ({'; '.join(shown)})" if shown else ""


def _end(rank: RankTrace) -> str | None:
    """Say how a rank ended, to follow its name; None where it finished or may have."""
    last = rank.events[-1] if rank.events else None
    step = f" in `{last.label}`" if last else ""
    if rank.ending == "died":
        return f"died ({rank.died}){step}"
    if rank.ending == "raised" and last is not None and last.failure is not None:
        words = last.failure.message.strip().splitlines()
        kinds = " or ".join(last.failure.kinds)
        return f"raised {kinds}{step}" + (f": {words[0]}" if words else "")
    return f"blocked{step}" if rank.ending == "blocked" else None


# ---------------------------------------------------------------------------- dies, within


def _dies(case: Case) -> list[Finding]:
    final = case.final
    if final.dies is None and "crash" not in final.ends:
        return []
    found: list[Finding] = []
    for rank in range(case.scenario.world_size) if final.dies is not None else ():
        assert final.dies is not None  # noqa: S101 -- asked above
        stated = chosen_text(case.predicted, rank, final.dies)
        case.compared += 1
        predicted, observed = _died(case.predicted, rank), _died(case.observed, rank)
        opened = "crash" in case.open or not case.reference or case.own_outcome
        mine = stated != predicted and not opened
        seen = case.observed is not None and stated != observed
        if not mine and not seen:
            continue
        witness: Witness = (
            "backend" if not mine else "expectation" if seen or case.run is None else "reference"
        )
        got = observed if case.run is not None else predicted
        found.append(
            Finding(
                witness=witness,
                code="dies_differs",
                prose=f"rank {rank} {_death(got)}, you expect that it {_death(stated)}",
                mark=chosen_place(case.predicted, rank, final.dies) or final.mark,
                ranks=(rank,),
                name="dies",
            )
        )
    return found


def _died(memories: Memories | None, rank: int) -> str | None:
    found = memories.rank(rank) if memories else None
    return found.died if found else None


def _death(how: str | None) -> str:
    return "does not die" if how is None else f"dies by {how}"


def _within(case: Case) -> list[Finding]:
    limit_s = case.final.within_s
    if limit_s is None:
        return []
    case.compared += 1
    predicted_s = case.prediction.duration_s
    mine = case.reference and predicted_s > limit_s + CLOCK_ERROR_S
    seen = case.run is not None and case.run.duration_s > limit_s
    if not mine and not seen:
        return []
    took_s = case.run.duration_s if case.run is not None else predicted_s
    return [
        Finding(
            witness="expectation" if mine else "backend",
            code="within_exceeded",
            prose=f"it takes {took_s:.3g} s, you expect at most {limit_s:g} s",
            mark=case.final.mark,
            name="within",
        )
    ]
