"""`missing_wait`: an asynchronous operation that is never waited for."""

from __future__ import annotations

from torch_scenarios.errors import Clause
from torch_scenarios.reference.matching import Work
from torch_scenarios.reference.symptoms import PARTS, Symptom
from torch_scenarios.reference.waits import (
    StoppedRun,
)


# Work that no one waits for mostly works, which is why it is a diagnosis of its own.
#
#     w = isend(x, 1)      the message leaves
#     x += 1               before it has left? A race, which no wait would end
#     (end)                the process may be gone before the message is
#
# Nothing hangs, and the values may be right on each machine that was tried. A handle that is
# dropped cannot be waited for any more (`RankState.gave_up`): that is known when the name is given
# anew, or when the program ends, and not while its rank is blocked.
def find(rest: StoppedRun) -> list[Symptom]:
    """Find work that a rank starts and never waits for."""
    unmatched = {
        finding.index: finding
        for finding in rest.found
        if finding.name in {"unmatched_send", "unmatched_recv", "tag_mismatch"}
    }
    missing: dict[int, dict[int, Work]] = {}
    for state in rest.run.ranks:
        for work in state.works:
            if state.gave_up(work):
                missing.setdefault(work.call.step.index, {}).setdefault(state.rank, work)
    return [_report_missing(works, unmatched) for works in missing.values()]


def _report_missing(works: dict[int, Work], unmatched: dict[int, Symptom]) -> Symptom:
    """Return the sighting of a step whose work some ranks never wait for, by rank."""
    work = next(iter(works.values()))
    several = sorted(works)
    who, verbs = f"rank {several[0]} starts", "waits"
    if len(several) > 1:
        shown = ", ".join(map(str, several[:7])) + (", ..." if len(several) > 8 else "")
        who, verbs = f"ranks {shown} and {several[-1]} start", "wait"
        if len(several) <= 8:
            who = f"ranks {', '.join(map(str, several[:-1]))} and {several[-1]} start"
    label = f"`{work.call.label}`"
    labels = {rank: works[rank].call.label for rank in several}
    if len(set(labels.values())) > 1:  # as the ranks of messages whose peers differ
        most = PARTS if len(labels) > PARTS + 1 else len(labels)
        each = [f"`{label}` on rank {rank}" for rank, label in [*labels.items()][:most]]
        more = len(labels) - most
        label = ", ".join(each) + (f", others on {more} more ranks," if more else "")
    step = work.call.step
    same = unmatched.get(step.index)
    return Symptom(
        name="missing_wait",
        clauses=(
            Clause(
                f"{who} {label}",
                work.call.mark,
                f" and never {verbs} for it",
            ),
        ),
        kind=same.kind if same else f"missing_wait:{step.index}",
        index=step.index,
        iteration=work.call.iteration,
        ranks=(several[0],),
    )
