"""Collectives and groups that not every member reaches, or not in the same way."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.reference.findings import Finding
from runner.reference.posts import Joining
from runner.reference.results import ALL_OUTCOMES
from runner.reference.telling import place, several
from runner.reference.waits import gone

if TYPE_CHECKING:
    from runner.reference.meetings import Meeting
    from runner.reference.posts import Creating
    from runner.reference.simulation import Simulation
    from runner.reference.waits import Futures, Need


def mismatched_calls(simulation: Simulation, futures: Futures, needs: list[Need]) -> list[Finding]:
    """Find members whose n-th operations on a group are not the same."""
    found = []
    seen: set[tuple[str, int]] = set()
    for meeting in simulation.meetings.all():
        if len(meeting.kinds) > 1:
            simulation.opened |= ALL_OUTCOMES
            seen.add((meeting.group.key, meeting.position))
            found.append(_call_mismatch(meeting))
    for need in needs:
        post = need.waiters[0]
        if not isinstance(post, Joining):
            continue
        key = (post.meeting.group.key, post.meeting.position)
        other = [peer for peer in need.peers if futures.brings(post, peer) == "other"]
        if other and key not in seen:
            seen.add(key)
            found.append(_later_mismatch(post, tuple(other)))
    return found


def _call_mismatch(meeting: Meeting) -> Finding:
    names = {
        at: joining.call.operation.name  # type: ignore[union-attr]
        for at, joining in meeting.joined.items()
    }
    usual = Counter(names[at] for at in sorted(names)).most_common(1)[0][0]
    told = "; ".join(
        f"{several([meeting.group.ranks[at] for at in sorted(names) if names[at] == name])} in "
        f"`{name}`{_first_place(meeting, names, name)}"
        for name in meeting.kinds
    )
    first = min(meeting.joined.values(), key=lambda joining: joining.call.step.index)
    return Finding(
        name="call_mismatch",
        prose=(
            f"operation {meeting.position + 1} on {meeting.group.name} is not the same for all: "
            f"{told}"
        ),
        kind=f"call_mismatch:{meeting.group.key}:{meeting.position}",
        index=first.call.step.index,
        iteration=first.call.iteration,
        ranks=tuple(sorted(joining.rank for joining in meeting.joined.values())),
        odd=tuple(meeting.group.ranks[at] for at in sorted(names) if names[at] != usual),
        also=("circular_wait",),
    )


def _first_place(meeting: Meeting, names: dict[int, str], name: str) -> str:
    at = min(at for at in names if names[at] == name)
    return place(meeting.joined[at])


def _later_mismatch(post: Joining, others: tuple[int, ...]) -> Finding:
    call = post.call
    return Finding(
        name="call_mismatch",
        prose=(
            f"operation {post.meeting.position + 1} on {post.meeting.group.name} is `{call.label}` "
            f"for rank {post.rank}{place(post)}, and something else for {several(others)}"
        ),
        kind=f"call_mismatch:{post.meeting.group.key}:{post.meeting.position}",
        index=call.step.index,
        iteration=call.iteration,
        ranks=tuple(sorted({post.rank, *others})),
        odd=others,
        also=("circular_wait",),
    )


def absent_members(simulation: Simulation, futures: Futures) -> list[Finding]:
    """Find collectives that a member never reaches, whether or not someone is stuck for it."""
    found = []
    for meeting in simulation.meetings.all():
        if len(meeting.kinds) != 1 or len(meeting.joined) == meeting.group.size:
            continue
        joining = meeting.joined[min(meeting.joined)]
        absent = [rank for at, rank in enumerate(meeting.group.ranks) if at not in meeting.joined]
        never = [rank for rank in absent if futures.brings(joining, rank) == "never"]
        if never:
            excused = all(gone(simulation, rank) for rank in never)
            found.append(replace(_missing(meeting, joining, tuple(never)), optional=excused))
    return found


def _missing(meeting: Meeting, joining: Joining, never: tuple[int, ...]) -> Finding:
    present = sorted(other.rank for other in meeting.joined.values())
    return Finding(
        name="missing_participant",
        prose=(
            f"{several(never)} never {'enters' if len(never) == 1 else 'enter'} "
            f"`{joining.call.label}`{place(joining)}, where {several(present)} "
            f"{'waits' if len(present) == 1 else 'wait'}"
        ),
        kind=f"missing:{meeting.group.key}:{joining.call.step.index}:{never}",
        index=joining.call.step.index,
        iteration=joining.call.iteration,
        ranks=tuple(sorted({*present, *never})),
        odd=never,
    )


def disputed_creations(simulation: Simulation, futures: Futures) -> list[Finding]:
    """Find groups that the ranks do not create alike."""
    found = []
    for here in simulation.creations.all():
        lists = {creating.group.ranks for creating in here.values()}
        if len(lists) > 1:
            simulation.opened |= ALL_OUTCOMES
            found.append(_created_differently(here))
            continue
        first = here[min(here)]
        if first.local:
            absent = [rank for rank in first.group.ranks if rank not in here]
        else:
            absent = [rank for rank in range(len(simulation.ranks)) if rank not in here]
        never = [rank for rank in absent if futures.brings(first, rank) == "never"]
        if never:
            excused = all(gone(simulation, rank) for rank in never)
            found.append(replace(_never_created(first, tuple(never)), optional=excused))
    return found


def _created_differently(here: dict[int, Creating]) -> Finding:
    told = "; ".join(
        f"rank {rank} creates {list(here[rank].group.ranks)}{place(here[rank])}"
        for rank in sorted(here)
    )
    usual = Counter(here[rank].group.ranks for rank in sorted(here)).most_common(1)[0][0]
    ordinal = here[min(here)].ordinal
    first = here[min(here)].call
    return Finding(
        name="group_creation",
        prose=f"the ranks disagree on group {ordinal + 1} that they create: {told}",
        kind=f"group_creation:{ordinal}",
        index=min(creating.call.step.index for creating in here.values()),
        iteration=first.iteration,
        ranks=tuple(sorted(here)),
        odd=tuple(rank for rank in sorted(here) if here[rank].group.ranks != usual),
        also=("missing_participant", "circular_wait"),
    )


def _never_created(first: Creating, never: tuple[int, ...]) -> Finding:
    members = set(first.group.ranks)
    name = "missing_participant" if members & set(never) else "group_creation"
    also = ("group_creation",) if name == "missing_participant" else ("missing_participant",)
    tail = "" if members & set(never) else "; torch asks every rank of the world to, member or not"
    return Finding(
        name=name,
        prose=(
            f"{several(never)} never {'calls' if len(never) == 1 else 'call'} "
            f"`{first.call.label}`{place(first)}{tail}"
        ),
        kind=f"creation:{first.number}",
        index=first.call.step.index,
        iteration=first.call.iteration,
        ranks=tuple(sorted({first.rank, *never})),
        odd=never,
        also=also,
    )
