"""Collectives and groups that not every member reaches, or not in the same way."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.reference.findings import Finding
from runner.reference.posts import Joining
from runner.reference.results import ALL_OUTCOMES
from runner.reference.telling import listing, odd_first, place, several
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
    parts: dict[str, list[int]] = {}
    for at in sorted(names):
        parts.setdefault(names[at], []).append(meeting.group.ranks[at])
    told = odd_first(parts, lambda name: f" in `{name}`{_first_place(meeting, names, name)}")
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
            found.append(
                replace(
                    _missing(simulation, futures, meeting, joining, tuple(never)), optional=excused
                )
            )
    return found


def _missing(
    simulation: Simulation,
    futures: Futures,
    meeting: Meeting,
    joining: Joining,
    never: tuple[int, ...],
) -> Finding:
    present = sorted(other.rank for other in meeting.joined.values())
    alone = len(never) == 1
    skipped = _skipped(simulation, futures, joining, never[0])
    waiting = (
        f"{several(present)} {'waits' if len(present) == 1 else 'wait'} in "
        f"`{joining.call.label}`{place(joining)}"
    )
    if skipped is None:
        prose = (
            f"{several(never)} never enter{'s' if alone else ''} "
            f"`{joining.call.label}`{place(joining)}, where {several(present)} "
            f"{'waits' if len(present) == 1 else 'wait'}"
        )
    else:
        prose = (
            f"{several(never)} skip{'s' if alone else ''} `{skipped.call.label}`{place(skipped)}, "
            f"and so never make{'s' if alone else ''} operation {meeting.position + 1} on "
            f"{meeting.group.name}, for which {waiting}"
        )
    return Finding(
        name="missing_participant",
        prose=prose,
        kind=f"missing:{meeting.group.key}:{joining.call.step.index}:{never}",
        index=joining.call.step.index,
        iteration=joining.call.iteration,
        ranks=tuple(sorted({*present, *never})),
        odd=never,
    )


def _skipped(
    simulation: Simulation, futures: Futures, joining: Joining, absent: int
) -> Joining | None:
    """Return the first call on the group that `absent` skips, if it takes the one waited in.

    Collectives meet by their number on the group: a rank that leaves one out is in each later one
    too early, and what it lacks in the end is none of the steps that it skipped.
    """
    key = joining.meeting.group.key
    there = joining.meeting.group.group_rank(absent)
    here = joining.meeting.group.group_rank(joining.rank)
    before = simulation.meetings.of_group(key)
    taken = [each.joined[there].call for each in before if there in each.joined]
    taken += [call for call in futures.of(absent) if call.entry.group.key == key]
    instances = {(call.step.index, call.iteration) for call in taken}
    if (joining.call.step.index, joining.call.iteration) not in instances:
        return None
    mine = (each.joined[here] for each in before if here in each.joined)
    return next(
        (own for own in mine if (own.call.step.index, own.call.iteration) not in instances), None
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
    parts: dict[str, list[int]] = {}
    for rank in sorted(here):
        lists = f"{listing(here[rank].group.ranks)}{place(here[rank])}"
        parts.setdefault(lists, []).append(rank)
    told = odd_first(parts, lambda lists: f" create{'s' if len(parts[lists]) == 1 else ''} {lists}")
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
