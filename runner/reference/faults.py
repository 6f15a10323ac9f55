"""What is wrong with a program, read from a run that has come to rest.

The simulation itself notes what it meets on the way (arguments that disagree, refused calls,
races on buffers). Here is added what only the end shows: who never came, what nobody took, who
waits for whom in a ring, and what was started and never waited for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.reference.findings import Finding
from runner.reference.matching import Creating, Joining, Posted
from runner.reference.results import ALL_OUTCOMES
from runner.reference.waits import Edge, Futures, cycles, edges_of, messages_of

if TYPE_CHECKING:
    from runner.reference.matching import Meeting, Post, Work
    from runner.reference.simulation import Simulation
    from runner.reference.state import RankState


def faults(simulation: Simulation) -> tuple[list[Finding], list[Edge]]:
    """Return every finding about a run that has come to rest, and its wait-for graph."""
    futures = Futures(simulation)
    edges = [
        edge
        for state in simulation.ranks
        if state.state == "blocked"
        for edge in edges_of(simulation, state)
    ]
    found = list(simulation.findings)
    found += _mismatched_calls(simulation, futures, edges)
    found += _absent(simulation, futures)
    found += _creations(simulation, futures)
    found += _messages(simulation, futures)
    found += _rings(futures, edges)
    found += _unwaited(simulation, found)
    return found, edges


# ---------------------------------------------------------------------- collectives


def _mismatched_calls(simulation: Simulation, futures: Futures, edges: list[Edge]) -> list[Finding]:
    found = []
    seen: set[tuple[str, int]] = set()
    for meeting in simulation.meetings.all():
        if len(meeting.kinds) > 1:
            simulation.opened |= ALL_OUTCOMES
            seen.add((meeting.group.key, meeting.position))
            found.append(_call_mismatch(meeting))
    for edge in edges:
        post = edge.post
        if not isinstance(post, Joining) or futures.brings(edge) != "other":
            continue
        key = (post.meeting.group.key, post.meeting.position)
        if key not in seen:
            seen.add(key)
            found.append(_later_mismatch(futures, edge, post))
    return found


def _call_mismatch(meeting: Meeting) -> Finding:
    names = {
        at: joining.call.operation.name  # type: ignore[union-attr]
        for at, joining in meeting.joined.items()
    }
    usual = Counter(names[at] for at in sorted(names)).most_common(1)[0][0]
    told = "; ".join(
        f"{ranks([meeting.group.ranks[at] for at in sorted(names) if names[at] == name])} in "
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


def _later_mismatch(futures: Futures, edge: Edge, post: Joining) -> Finding:
    del futures
    call = post.call
    return Finding(
        name="call_mismatch",
        prose=(
            f"operation {post.meeting.position + 1} on {post.meeting.group.name} is `{call.label}` "
            f"for rank {edge.waiter}{place(post)}, and something else for rank {edge.peer}"
        ),
        kind=f"call_mismatch:{post.meeting.group.key}:{post.meeting.position}",
        index=call.step.index,
        iteration=call.iteration,
        ranks=(edge.waiter, edge.peer),
        odd=(edge.peer,),
        also=("circular_wait",),
    )


def _absent(simulation: Simulation, futures: Futures) -> list[Finding]:
    """Find collectives that a member never reaches, whether or not someone is stuck for it."""
    found = []
    for meeting in simulation.meetings.all():
        if len(meeting.kinds) != 1 or len(meeting.joined) == meeting.group.size:
            continue
        joining = meeting.joined[min(meeting.joined)]
        absent = [rank for at, rank in enumerate(meeting.group.ranks) if at not in meeting.joined]
        never = [
            rank
            for rank in absent
            if futures.brings(Edge(waiter=joining.rank, peer=rank, post=joining, because=""))
            == "never"
        ]
        if never:
            gone = all(_gone(simulation, rank) for rank in never)
            found.append(replace(_missing(meeting, joining, tuple(never)), optional=gone))
    return found


def _missing(meeting: Meeting, joining: Joining, never: tuple[int, ...]) -> Finding:
    present = sorted(other.rank for other in meeting.joined.values())
    return Finding(
        name="missing_participant",
        prose=(
            f"{ranks(list(never))} never {'enters' if len(never) == 1 else 'enter'} "
            f"`{joining.call.label}`{place(joining)}, where {ranks(present)} "
            f"{'waits' if len(present) == 1 else 'wait'}"
        ),
        kind=f"missing:{meeting.group.key}:{joining.call.step.index}:{never}",
        index=joining.call.step.index,
        iteration=joining.call.iteration,
        ranks=tuple(sorted({*present, *never})),
        odd=never,
    )


# ---------------------------------------------------------------------- groups


def _creations(simulation: Simulation, futures: Futures) -> list[Finding]:
    found = []
    for ordinal, here in enumerate(simulation.creations.all()):
        lists = {creating.group.ranks for creating in here.values()}
        if len(lists) > 1:
            simulation.opened |= ALL_OUTCOMES
            found.append(_created_differently(ordinal, here))
            continue
        first = here[min(here)]
        if first.local:
            absent = [rank for rank in first.group.ranks if rank not in here]
        else:
            absent = [rank for rank in range(len(simulation.ranks)) if rank not in here]
        never = [
            rank
            for rank in absent
            if futures.brings(Edge(waiter=first.rank, peer=rank, post=first, because="")) == "never"
        ]
        if never:
            gone = all(_gone(simulation, rank) for rank in never)
            found.append(replace(_never_created(first, tuple(never)), optional=gone))
    return found


def _created_differently(ordinal: int, here: dict[int, Creating]) -> Finding:
    told = "; ".join(
        f"rank {rank} creates {list(here[rank].group.ranks)}{place(here[rank])}"
        for rank in sorted(here)
    )
    usual = Counter(here[rank].group.ranks for rank in sorted(here)).most_common(1)[0][0]
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
            f"{ranks(list(never))} never {'calls' if len(never) == 1 else 'call'} "
            f"`{first.call.label}`{place(first)}{tail}"
        ),
        kind=f"creation:{first.ordinal}",
        index=first.call.step.index,
        iteration=first.call.iteration,
        ranks=tuple(sorted({first.rank, *never})),
        odd=never,
        also=also,
    )


# ---------------------------------------------------------------------- messages


def _messages(simulation: Simulation, futures: Futures) -> list[Finding]:
    """Find messages that no one takes, and receives that nothing answers."""
    found: list[Finding] = []
    box = simulation.mailbox
    for post in (*box.sends, *box.receives, *box.abandoned):
        peers = (
            [post.message.peer]
            if post.message.peer is not None
            else [rank for rank in post.group.ranks if rank != post.rank]
        )
        gone = any(_gone(simulation, peer) for peer in peers)
        gone = gone or simulation.ranks[post.rank].state in {"raised", "died"}
        outcomes = [
            futures.brings(Edge(waiter=post.rank, peer=peer, post=post, because=""))
            for peer in peers
        ]
        if "late" not in outcomes:
            found.append(replace(_unmatched(simulation, futures, post), optional=gone))
    return found


def _unmatched(simulation: Simulation, futures: Futures, post: Posted) -> Finding:
    sends = post.message.sends
    step = post.call.step
    other = _other_tag(simulation, futures, post)
    if other is not None:
        first, second = (post.rank, post.message.peer) if sends else (post.message.peer, post.rank)
        mine, theirs = ("sends", "receives") if sends else ("receives", "sends")
        return Finding(
            name="tag_mismatch",
            prose=(
                f"rank {post.rank} {mine} with tag {post.message.tag} in "
                f"`{post.call.label}`{place(post)}, rank {post.message.peer} {theirs} with tag "
                f"{other}"
            ),
            kind=f"tag:{post.group.key}:{first}:{second}",
            index=step.index,
            iteration=post.call.iteration,
            ranks=tuple(sorted({post.rank, post.message.peer or 0})),
            also=("unmatched_send", "unmatched_recv", "circular_wait"),
        )
    whom = "anyone" if post.message.peer is None else f"rank {post.message.peer}"
    prose = (
        f"rank {post.rank} sends to {whom} in `{post.call.label}`{place(post)}, and {whom} never "
        "receives it"
        if sends
        else f"rank {post.rank} receives from {whom} in `{post.call.label}`{place(post)}, and "
        f"{whom} never sends"
    )
    name = "unmatched_send" if sends else "unmatched_recv"
    return Finding(
        name=name,
        prose=prose,
        kind=f"{name}:{step.index}:{post.rank}",
        index=step.index,
        iteration=post.call.iteration,
        ranks=(post.rank,) if post.message.peer is None else (post.rank, post.message.peer),
        odd=() if post.message.peer is None else (post.message.peer,),
        also=("buffering_hazard",) if sends else ("missing_participant",),
    )


def _other_tag(simulation: Simulation, futures: Futures, post: Posted) -> int | None:
    """Return the tag of the message that the peer has for this rank under another tag."""
    peer = post.message.peer
    if peer is None:
        return None
    box = simulation.mailbox.receives if post.message.sends else simulation.mailbox.sends
    for other in box:
        if other.rank == peer and other.message.peer == post.rank and other.group == post.group:
            return other.message.tag
    for call in futures.of(peer):
        for message in messages_of(call):
            if (
                message.sends != post.message.sends
                and message.peer == post.rank
                and message.tag != post.message.tag
            ):
                return message.tag
    return None


# ---------------------------------------------------------------------- rings


def _rings(futures: Futures, edges: list[Edge]) -> list[Finding]:
    late = [edge for edge in edges if futures.brings(edge) == "late"]
    return [_ring(ring) for ring in cycles(late)]


def _ring(ring: list[Edge]) -> Finding:
    members = tuple(sorted({edge.waiter for edge in ring}))
    told = "; ".join(tell(edge) for edge in ring[: 2 * len(members)])
    end = "neither can move" if len(members) == 2 else "none can move"  # noqa: PLR2004
    first = min(ring, key=lambda edge: (edge.post.call.step.index, edge.waiter)).post.call
    groups = {edge.post.meeting.group.key for edge in ring if isinstance(edge.post, Joining)}
    collective = all(isinstance(edge.post, Joining) for edge in ring)
    creates = all(isinstance(edge.post, Creating) for edge in ring)
    name = "circular_wait"
    also: tuple[str, ...] = ()
    if collective and len(groups) > 1:
        name, also = "group_order", ("circular_wait",)
    elif creates:
        name, also = "group_creation", ("circular_wait",)
    return Finding(
        name=name,
        prose=f"{told}; {end}",
        kind=f"ring:{members}",
        index=first.step.index,
        iteration=first.iteration,
        ranks=members,
        also=also,
    )


def tell(edge: Edge) -> str:
    """Put an edge into words."""
    return (
        f"rank {edge.waiter} waits in `{edge.post.call.label}`{place(edge.post)} for rank "
        f"{edge.peer} {edge.because}"
    )


# ---------------------------------------------------------------------- work left over


def _unwaited(simulation: Simulation, found: list[Finding]) -> list[Finding]:
    unmatched = {
        finding.index: finding
        for finding in found
        if finding.name in {"unmatched_send", "unmatched_recv", "tag_mismatch"}
    }
    missing: dict[int, Finding] = {}
    for state in simulation.ranks:
        if state.state != "finished":
            continue
        for work in state.works:
            if not work.waited:
                missing.setdefault(work.call.step.index, _missing_wait(state, work, unmatched))
    return list(missing.values())


def _missing_wait(state: RankState, work: Work, unmatched: dict[int, Finding]) -> Finding:
    step = work.call.step
    same = unmatched.get(step.index)
    return Finding(
        name="missing_wait",
        prose=(
            f"rank {state.rank} starts `{work.call.label}`{place(work.posts[0])} and never waits "
            "for it"
        ),
        kind=same.kind if same else f"missing_wait:{step.index}",
        index=step.index,
        iteration=work.call.iteration,
        ranks=(state.rank,),
    )


def _gone(simulation: Simulation, rank: int) -> bool:
    """Whether a rank ended by a fault or an exception: then its absence is no fault of its own."""
    if not 0 <= rank < len(simulation.ranks):
        return False
    state = simulation.ranks[rank]
    return state.state in {"raised", "died"} or bool(state.broken)


def place(post: Post) -> str:
    """Return ` (file:line)` of a post's step, or nothing."""
    mark = post.call.step.mark
    return f" ({mark.short})" if mark else ""


def ranks(numbers: list[int]) -> str:
    """Return `rank 3` or `ranks 0, 2`."""
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(map(str, numbers))
