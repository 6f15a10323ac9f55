"""Messages that no one takes, receives that nothing answers, and tags that do not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.reference.findings import Finding
from runner.reference.telling import place
from runner.reference.waits import gone, messages_of, on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.operations.entries import Message
    from runner.plan import Group
    from runner.reference.posts import Posted
    from runner.reference.simulation import Simulation
    from runner.reference.waits import Futures

#: members of a group whose futures are looked at for a receive from anyone
MOST_PEERS = 64


def unmatched_messages(simulation: Simulation, futures: Futures) -> list[Finding]:
    """Find messages that no one takes, and receives that nothing answers."""
    found: list[Finding] = []
    box = simulation.mailbox
    for post in (*box.sends, *box.receives, *box.abandoned):
        peers = (
            [post.message.peer]
            if post.message.peer is not None
            else [rank for rank in post.group.ranks if rank != post.rank]
        )
        excused = any(gone(simulation, peer) for peer in peers)
        excused = excused or simulation.ranks[post.rank].state in {"raised", "died"}
        outcomes = [futures.brings(post, peer) for peer in peers]
        if "late" not in outcomes:
            found.append(replace(_unmatched(simulation, futures, post), optional=excused))
    return found


def _unmatched(simulation: Simulation, futures: Futures, post: Posted) -> Finding:
    sends = post.message.sends
    step = post.call.step
    other = _other_tag(simulation, futures, post)
    if other is not None:
        peer, tag = other
        first, second = (post.rank, peer) if sends else (peer, post.rank)
        mine, theirs = ("sends", "receives") if sends else ("receives", "sends")
        whom = " from anyone" if post.message.peer is None else ""
        return Finding(
            name="tag_mismatch",
            prose=(
                f"rank {post.rank} {mine}{whom} with tag {post.message.tag} in "
                f"`{post.call.label}`{place(post)}, rank {peer} {theirs} with tag {tag}"
            ),
            kind=f"tag:{post.group.key}:{first}:{second}",
            index=step.index,
            iteration=post.call.iteration,
            ranks=tuple(sorted({post.rank, peer})),
            also=("unmatched_send", "unmatched_recv", "circular_wait"),
        )
    elsewhere = _other_group(simulation, futures, post)
    here = on(simulation, post)
    if elsewhere is not None:
        here, there = f" on {post.group.name}", f" on {elsewhere}"
    whom = "anyone" if post.message.peer is None else f"rank {post.message.peer}"
    mine, lacks = ("sends to", "receives it") if sends else ("receives from", "sends")
    prose = f"rank {post.rank} {mine} {whom}{here} in `{post.call.label}`{place(post)}, and "
    if elsewhere is not None:
        does = f"receives from rank {post.rank}" if sends else f"sends to rank {post.rank}"
        prose += f"{whom} {does}, and only{there}: messages of two groups never meet"
    else:
        prose += f"{whom} never {lacks}"
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


def _other_tag(simulation: Simulation, futures: Futures, post: Posted) -> tuple[int, int] | None:
    """Return a peer, and the tag of the message that it has for this rank under another tag."""
    tag = post.message.tag
    for peer, group, message in _opposite(simulation, futures, post):
        if group == post.group and message.tag != tag:
            return peer, message.tag
    return None


def _other_group(simulation: Simulation, futures: Futures, post: Posted) -> str | None:
    """Return the group on which a named peer has the opposite of a message, under its tag."""
    if post.message.peer is None:
        return None
    for _, group, message in _opposite(simulation, futures, post):
        if group != post.group and message.tag == post.message.tag:
            return group.name
    return None


def _opposite(
    simulation: Simulation, futures: Futures, post: Posted
) -> Iterator[tuple[int, Group, Message]]:
    """Yield the messages that would be the other end of one, but for tag and group."""
    mine = post.message
    box = simulation.mailbox.receives if mine.sends else simulation.mailbox.sends
    for other in box:
        if _meets(mine.peer, other.rank) and _meets(other.message.peer, post.rank):
            yield other.rank, other.group, other.message
    members = post.group.ranks if mine.peer is None else (mine.peer,)
    for peer in members if len(members) <= MOST_PEERS else ():
        for call in futures.of(peer) if peer != post.rank else ():
            for message in messages_of(call):
                if message.sends != mine.sends and _meets(message.peer, post.rank):
                    yield peer, call.entry.group, message


def _meets(peer: int | None, rank: int) -> bool:
    """Whether a message to or from `peer` (None: anyone) may be one with `rank`."""
    return peer is None or peer == rank
