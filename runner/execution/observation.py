"""From what the ranks told to the observed trace: endings settled, the outcome named."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.forms import PerRank
from runner.problems import LaunchError, UnsupportedError
from runner.scenario import RaiseSpec
from runner.trace import Event, RankTrace, Trace

if TYPE_CHECKING:
    from runner.execution.orders import Position
    from runner.execution.supervisor import Findings
    from runner.plan import Plan

#: seconds by which a rank may have begun later than one of another host, whose clock is another
BETWEEN_HOSTS_S = 0.05
#: signals that a process raises itself: the backend crashed, or aborted
CRASHES = frozenset({"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP"})
#: what a call raises that could not end within its timeout, itself or through its peer
CASCADE = frozenset({"timeout", "peer_lost", "aborted"})


def observed(plan: Plan, findings: Findings, predicted: Trace) -> Trace:
    """Return the observed trace of a plan of which something was predicted.

    Raises UnsupportedError or LaunchError where a rank could not make its world, LaunchError where
    the process of one did not run any more, or was ended by neither the program nor the backend.
    """
    if findings.lost:
        rank = min(findings.lost)
        message = f"rank {rank} was given up: {findings.lost[rank]}"
        raise LaunchError(message)
    if findings.unable:
        raise unable(findings)
    for rank, how in sorted(findings.died.items()):
        if _from_outside(rank, how, findings):
            raise LaunchError(_killed(rank, how, findings))
    late_s = _late(findings)
    ranks = [_rank(rank, findings) for rank in range(plan.world_size)]
    ranks = [replace(rank, late_s=late_s.get(rank.rank, 0.0)) for rank in ranks]
    ranks = _settled(plan, ranks, predicted)
    any_told = next(iter(findings.told.values()), None)
    notes = [*findings.notes, *(note for told in findings.told.values() for note in told.notes)]
    if findings.hung:
        notes.append("the backend's own timeout did not end it")
    return Trace(
        backend=any_told.backend if any_told else "unknown",
        outcome=outcome(ranks),
        ranks=tuple(ranks),
        duration_s=findings.duration_s,
        notes=tuple(filter(None, notes)),
        environment=_environment(findings),
    )


def _from_outside(rank: int, how: str, findings: Findings) -> bool:
    """Return whether neither a step nor the backend ended a rank's process.

    A rank whose step ends it says so before; a backend ends it by a signal of its own, or exits.
    """
    told = findings.told.get(rank)
    if told is not None and told.trace.ending == "died":
        return False
    return how not in CRASHES and not how.startswith("exit ")


def _killed(rank: int, how: str, findings: Findings) -> str:
    pid = findings.pids.get(rank)
    process = "" if pid is None else f" (process {pid})"
    if not how.startswith("SIG"):
        return f"rank {rank}{process} ended with its launch: {how}"
    memory = "; the kernel does so where memory runs out" if how == "SIGKILL" else ""
    return f"rank {rank}{process} was killed from outside by {how}, which no step asks for{memory}"


def _environment(findings: Findings) -> dict[str, str]:
    """Return what the run was on; `world_s` is the seconds that its world took to be made."""
    made_s = max((told.world_s for told in findings.told.values()), default=0.0)
    return {**findings.environment, **({"world_s": f"{made_s:.4f}"} if made_s else {})}


def _late(findings: Findings) -> dict[int, float]:
    """Return how many seconds after the first rank each began, as far as their clocks tell."""
    first_s: dict[str, float] = {}
    for told in findings.told.values():
        first_s[told.host] = min(told.began_s, first_s.get(told.host, told.began_s))
    between_s = BETWEEN_HOSTS_S if len(first_s) > 1 else 0.0
    return {
        rank: told.began_s - first_s[told.host] + between_s for rank, told in findings.told.items()
    }


def unable(findings: Findings) -> Exception:
    """Return the error for ranks that could not make their world."""
    first = findings.unable[min(findings.unable)]
    kind = UnsupportedError if first.unsupported else LaunchError
    return kind(first.reason)


def _rank(rank: int, findings: Findings) -> RankTrace:
    told = findings.told.get(rank)
    died = findings.died.get(rank)
    if told is not None:
        if died is not None and told.trace.ending in {"finished", "blocked"}:
            return replace(told.trace, ending="died", died=died)
        return told.trace
    position = findings.stuck.get(rank)
    events = (_standing(position),) if position else ()
    if died is not None:
        return RankTrace(rank=rank, events=events, ending="died", died=died)
    return RankTrace(rank=rank, events=events, ending="blocked")


def _standing(position: Position) -> Event:
    index, iteration = position
    return Event(index=index, label=f"step {index}", iteration=iteration, state="blocked")


def _settled(plan: Plan, ranks: list[RankTrace], predicted: Trace) -> list[RankTrace]:
    """Call a rank blocked that raised only because its call could not end within its timeout.

    So it is where no step and no top-level `raises` asked for what the timeout brings, and it was
    not predicted either: who waits for a rank that comes, but comes too late, is not blocked. A
    rank that lost its peer counts as blocked with it where that peer timed out, and none died or
    raised anything else.
    """
    if any(_stated(plan, rank.rank) for rank in ranks if rank.ending == "raised"):
        return ranks
    late = {rank.rank for rank in predicted.ranks if _raised_kind(rank) in CASCADE}
    if any(rank.ending == "raised" and rank.rank in late for rank in ranks):
        return ranks
    last = {rank.rank: _raised_kind(rank) for rank in ranks if rank.ending == "raised"}
    timed_out = "timeout" in last.values()
    others = any(rank.ending == "died" for rank in ranks) or set(last.values()) - CASCADE
    if not timed_out or others:
        return ranks
    return [_blocked(rank) if rank.rank in last else rank for rank in ranks]


def _raised_kind(rank: RankTrace) -> str:
    """Return what a rank that ended so raised; `other` where it ended otherwise."""
    ended = rank.ending == "raised" and len(rank.events)
    failure = rank.events[-1].failure if ended else None
    return failure.kinds[0] if failure else "other"


def _blocked(rank: RankTrace) -> RankTrace:
    *before, last = rank.events
    return replace(rank, ending="blocked", events=(*before, replace(last, state="blocked")))


def _stated(plan: Plan, rank: int) -> bool:
    """Return whether the scenario's top-level `raises` concerns a rank."""
    raises = plan.scenario.expect.at_end.raises
    if isinstance(raises, RaiseSpec):
        return bool(raises.kinds)
    if isinstance(raises, PerRank):
        from runner.language.functions import NumpyArrays  # noqa: PLC0415 -- rarely needed
        from runner.program import Process  # noqa: PLC0415 -- rarely needed

        chosen = Process(plan, rank, NumpyArrays(), initialise=False).choose(raises)
        return isinstance(chosen, RaiseSpec) and bool(chosen.kinds)
    return False


def outcome(ranks: list[RankTrace]) -> str:
    """Name the outcome: the gravest ending decides."""
    endings = {rank.ending for rank in ranks}
    if "died" in endings:
        return "crash"
    if "raised" in endings:
        return "error"
    return "deadlock" if "blocked" in endings else "completes"
