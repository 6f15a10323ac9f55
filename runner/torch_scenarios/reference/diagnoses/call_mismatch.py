"""`call_mismatch`: members whose n-th operations on a group are not the same."""

from __future__ import annotations

from collections import Counter

from torch_scenarios.errors import Clause, Mark
from torch_scenarios.reference.matching import CollectiveMatch, CollectivePost
from torch_scenarios.reference.state import ALL_OUTCOMES
from torch_scenarios.reference.symptoms import Symptom, list_ranks, odd_first
from torch_scenarios.reference.waits import (
    StoppedRun,
)


# The mistake is found in two places: where ranks have met in different operations, and where a rank
# is blocked before it gets to the place at which it would differ.
#
#     position         0            1
#     rank 0           all_reduce   (waits)
#     rank 1           barrier                    met at position 0: seen in the match
#
#     rank 0           all_reduce
#     rank 1           recv from 0, barrier       rank 1 is not there yet: seen in its future
#
# In the second program a circle is there as well, but to break it would only lead to the mismatch.
def find(rest: StoppedRun) -> list[Symptom]:
    """Find members whose n-th operations on a group are not the same."""
    run, futures = rest.run, rest.futures
    found = []
    seen: set[tuple[str, int]] = set()
    for match in run.matches.all():
        if len(match.kinds) > 1:
            run.opened |= ALL_OUTCOMES
            seen.add((match.group.key, match.position))
            found.append(_call_mismatch(match))
    for need in rest.needs:
        post = need.waiters[0]
        if not isinstance(post, CollectivePost):
            continue
        key = (post.match.group.key, post.match.position)
        other = [peer for peer in need.peers if futures.brings(post, peer) == "other"]
        if other and key not in seen:
            seen.add(key)
            found.append(_later_mismatch(post, tuple(other)))
    return found


def _call_mismatch(match: CollectiveMatch) -> Symptom:
    names = {
        at: collective_post.call.operation.name  # type: ignore[union-attr]
        for at, collective_post in match.joined.items()
    }
    usual = Counter(names[at] for at in sorted(names)).most_common(1)[0][0]
    parts: dict[str, list[int]] = {}
    for at in sorted(names):
        parts.setdefault(names[at], []).append(match.group.ranks[at])
    clauses = odd_first(parts, lambda name: (f"in `{name}`", _find_place(match, names, name)))
    first = min(match.joined.values(), key=lambda collective_post: collective_post.call.step.index)
    return Symptom(
        name="call_mismatch",
        clauses=(
            Clause(f"operation {match.position + 1} on {match.group.name} is not the same for all"),
            *clauses,
        ),
        kind=f"call_mismatch:{match.group.key}:{match.position}",
        index=first.call.step.index,
        iteration=first.call.iteration,
        ranks=tuple(sorted(collective_post.rank for collective_post in match.joined.values())),
        odd=tuple(match.group.ranks[at] for at in sorted(names) if names[at] != usual),
        also=("circular_wait",),
    )


def _find_place(match: CollectiveMatch, names: dict[int, str], name: str) -> Mark | None:
    at = min(at for at in names if names[at] == name)
    return match.joined[at].call.mark


def _later_mismatch(post: CollectivePost, others: tuple[int, ...]) -> Symptom:
    call = post.call
    return Symptom(
        name="call_mismatch",
        clauses=(
            Clause(
                f"operation {post.match.position + 1} on {post.match.group.name} is "
                f"`{call.label}` for rank {post.rank}",
                call.mark,
                f", and something else for {list_ranks(others)}",
            ),
        ),
        kind=f"call_mismatch:{post.match.group.key}:{post.match.position}",
        index=call.step.index,
        iteration=call.iteration,
        ranks=tuple(sorted({post.rank, *others})),
        odd=others,
        also=("circular_wait",),
    )
