"""Messages that no one takes, receives that nothing answers, and tags that do not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.reference.findings import Finding
from runner.reference.telling import place
from runner.reference.waits import gone, messages_of

if TYPE_CHECKING:
    from runner.reference.posts import Posted
    from runner.reference.simulation import Simulation
    from runner.reference.waits import Futures


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
