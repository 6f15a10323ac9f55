"""`call_mismatch`: members whose n-th operations on a group are not the same."""

from __future__ import annotations

from collections import Counter

from torch_scenarios.errors import Clause, Mark, diagnosis
from torch_scenarios.reference.matching import Joining, Meeting
from torch_scenarios.reference.state import ALL_OUTCOMES
from torch_scenarios.reference.symptoms import Symptom, odd_first, several
from torch_scenarios.reference.waits import (
    AtRest,
)

EXPLANATIONS = (
    diagnosis(
        "call_mismatch",
        "The n-th operations of a group's members differ in kind.",
        "Collectives have no names or tags: a group's operations match by their order alone, so "
        "that the first all_reduce of one rank meets the first barrier of another.",
        "let every member call the same operations of a group in the same order.",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - ranks: 0
    all_reduce: {tensor: x}
  - ranks: 1
    barrier: {}
expect:
  outcome: deadlock
  diagnosis: call_mismatch
""",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x}
  - barrier: {}
""",
    ),
)


def find(rest: AtRest) -> list[Symptom]:
    """Find members whose n-th operations on a group are not the same."""
    run, futures = rest.run, rest.futures
    found = []
    seen: set[tuple[str, int]] = set()
    for meeting in run.meetings.all():
        if len(meeting.kinds) > 1:
            run.opened |= ALL_OUTCOMES
            seen.add((meeting.group.key, meeting.position))
            found.append(_call_mismatch(meeting))
    for need in rest.needs:
        post = need.waiters[0]
        if not isinstance(post, Joining):
            continue
        key = (post.meeting.group.key, post.meeting.position)
        other = [peer for peer in need.peers if futures.brings(post, peer) == "other"]
        if other and key not in seen:
            seen.add(key)
            found.append(_later_mismatch(post, tuple(other)))
    return found


def _call_mismatch(meeting: Meeting) -> Symptom:
    names = {
        at: joining.call.operation.name  # type: ignore[union-attr]
        for at, joining in meeting.joined.items()
    }
    usual = Counter(names[at] for at in sorted(names)).most_common(1)[0][0]
    parts: dict[str, list[int]] = {}
    for at in sorted(names):
        parts.setdefault(names[at], []).append(meeting.group.ranks[at])
    told = odd_first(parts, lambda name: (f"in `{name}`", _first_place(meeting, names, name)))
    first = min(meeting.joined.values(), key=lambda joining: joining.call.step.index)
    return Symptom(
        name="call_mismatch",
        clauses=(
            Clause(
                f"operation {meeting.position + 1} on {meeting.group.name} is not the same for all"
            ),
            *told,
        ),
        kind=f"call_mismatch:{meeting.group.key}:{meeting.position}",
        index=first.call.step.index,
        iteration=first.call.iteration,
        ranks=tuple(sorted(joining.rank for joining in meeting.joined.values())),
        odd=tuple(meeting.group.ranks[at] for at in sorted(names) if names[at] != usual),
        also=("circular_wait",),
    )


def _first_place(meeting: Meeting, names: dict[int, str], name: str) -> Mark | None:
    at = min(at for at in names if names[at] == name)
    return meeting.joined[at].call.mark


def _later_mismatch(post: Joining, others: tuple[int, ...]) -> Symptom:
    call = post.call
    return Symptom(
        name="call_mismatch",
        clauses=(
            Clause(
                f"operation {post.meeting.position + 1} on {post.meeting.group.name} is "
                f"`{call.label}` for rank {post.rank}",
                call.mark,
                f", and something else for {several(others)}",
            ),
        ),
        kind=f"call_mismatch:{post.meeting.group.key}:{post.meeting.position}",
        index=call.step.index,
        iteration=call.iteration,
        ranks=tuple(sorted({post.rank, *others})),
        odd=others,
        also=("circular_wait",),
    )
