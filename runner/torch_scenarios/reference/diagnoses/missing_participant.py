"""`missing_participant`: a collective that a member never reaches."""

from __future__ import annotations

from msgspec.structs import replace

from torch_scenarios.errors import Clause
from torch_scenarios.model.process import Call
from torch_scenarios.reference.matching import CollectiveMatch, CollectivePost
from torch_scenarios.reference.state import Run
from torch_scenarios.reference.symptoms import Symptom, list_ranks
from torch_scenarios.reference.waits import (
    Futures,
    StoppedRun,
    is_gone,
    was_refused,
)


# A collective may lack a member without a rank that waits for it: a broadcast lets its source go
# on, and the source may end.
#
#     rank 0   broadcast x from 0      goes on, and ends
#     rank 1   (no call)               nothing hangs, and x is not what the author thinks
#
# So the matches are looked at, and not the ranks that wait. Where a member raised or was killed, or
# torch refused its call as the scenario expects, its absence is what the scenario is about: the
# symptom is `optional`, and no one need state it.
def find(rest: StoppedRun) -> list[Symptom]:
    """Find collectives that a member never reaches, whether or not someone is stuck for it."""
    run, futures = rest.run, rest.futures
    found = []
    for match in run.matches.all():
        if len(match.kinds) != 1 or len(match.joined) == match.group.size:
            continue
        collective_post = match.joined[min(match.joined)]
        absent = [rank for at, rank in enumerate(match.group.ranks) if at not in match.joined]
        never = [rank for rank in absent if futures.brings(collective_post, rank) == "never"]
        if never:
            kind = type(collective_post.call.operation)
            excused = all(is_gone(run, rank) or was_refused(run, rank, kind) for rank in never)
            found.append(
                replace(
                    _report_missing(run, futures, match, collective_post, tuple(never)),
                    optional=excused,
                )
            )
    return found


def _report_missing(
    run: Run,
    futures: Futures,
    match: CollectiveMatch,
    collective_post: CollectivePost,
    never: tuple[int, ...],
) -> Symptom:
    """Return the symptom that some members never enter a collective, or skip one before it."""
    present = sorted(other.rank for other in match.joined.values())
    alone = len(never) == 1
    skipped = _find_skipped(run, futures, collective_post, never[0])
    waiting = f"{list_ranks(present)} {'waits' if len(present) == 1 else 'wait'}"
    call = collective_post.call
    if skipped is None:
        words = f"{list_ranks(never)} never enter{'s' if alone else ''} `{call.label}`"
        clauses = [Clause(words, call.mark, f", where {waiting}")]
    else:
        missed = (
            f", and so never make{'s' if alone else ''} operation {match.position + 1} on "
            f"{match.group.name}"
        )
        skips = f"{list_ranks(never)} skip{'s' if alone else ''} `{skipped.label}`"
        clauses = [
            Clause(skips, skipped.mark, missed),
            Clause(f"{waiting} for it in `{call.label}`", call.mark),
        ]
    return Symptom(
        name="missing_participant",
        clauses=tuple(clauses),
        kind=f"missing:{match.group.key}:{collective_post.call.step.index}:{never}",
        index=collective_post.call.step.index,
        iteration=collective_post.call.iteration,
        ranks=tuple(sorted({*present, *never})),
        odd=never,
    )


def _find_skipped(
    run: Run, futures: Futures, collective_post: CollectivePost, absent: int
) -> Call | None:
    """Return the first call on the group that `absent` skips, if it takes the one waited in.

    Collectives meet by their number on the group: a rank that leaves one out is in each later one
    too early, and what it lacks in the end is not one of the steps that it skipped.
    """
    key = collective_post.match.group.key
    taken = list(run.matches.calls(key, absent))
    taken += [call for call in futures.of(absent) if call.entry.group.key == key]
    instances = {(call.step.index, call.iteration) for call in taken}
    if (collective_post.call.step.index, collective_post.call.iteration) not in instances:
        return None
    mine = run.matches.calls(key, collective_post.rank)
    return next((own for own in mine if (own.step.index, own.iteration) not in instances), None)
