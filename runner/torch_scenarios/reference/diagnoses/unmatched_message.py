"""`unmatched_send`, `unmatched_recv`, `tag_mismatch`: a message without its other end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from torch_scenarios.errors import AwaitedAct, Clause, Mark
from torch_scenarios.model.process import Call
from torch_scenarios.operations.base import Group, Message, PointToPoint
from torch_scenarios.reference.matching import MessagePost
from torch_scenarios.reference.state import Run
from torch_scenarios.reference.symptoms import Symptom
from torch_scenarios.reference.waits import (
    Futures,
    StoppedRun,
    is_gone,
    messages_of,
    tell_group,
    was_refused,
)

#: members of a group whose futures are looked at for a receive from anyone
MOST_PEERS = 64


def find(rest: StoppedRun) -> list[Symptom]:
    """Find messages that no one takes, and receives that nothing answers."""
    run, futures = rest.run, rest.futures
    found: list[Symptom] = []
    unmatched: list[tuple[MessagePost, Symptom]] = []
    box = run.mailbox
    for post in (*box.sends, *box.receives, *box.abandoned):
        peers = (
            [post.message.peer]
            if post.message.peer is not None
            else [rank for rank in post.group.ranks if rank != post.rank]
        )
        excused = any(is_gone(run, peer) or was_refused(run, peer, PointToPoint) for peer in peers)
        excused = excused or run.ranks[post.rank].state in {"raised", "died"}
        # A peer that is blocked elsewhere may have the other end further on in its program
        # ("late"), or in the part of a truncated program that is not written down ("beyond"): then
        # something else is the mistake, if anything.
        outcomes = [futures.brings(post, peer) for peer in peers]
        if not {"late", "beyond"} & {*outcomes}:
            symptom = replace(_report_unmatched(run, futures, post), optional=excused)
            if symptom.name == "tag_mismatch" or excused or post.message.peer is None:
                found.append(symptom)
            else:
                unmatched.append((post, symptom))
    return [*found, *_join_misdirected(unmatched)]


# One wrong rank in one argument leaves two messages without their other end:
#
#     rank 0   send x to 2         no one receives it on rank 2
#     rank 1   recv x from 0       no one sends it
#
# Reported as two mistakes, an author would look for two. They are joined where the ends would meet
# if one number were another one; the nearest receive in order counts, as the likeliest.
def _join_misdirected(unmatched: Sequence[tuple[MessagePost, Symptom]]) -> list[Symptom]:
    """Return messages without their other end; where one peer is wrong, both ends are one mistake.

    Rank 0 sends to rank 2 while rank 1 receives from rank 0: neither message has another end.
    """
    found: list[Symptom] = []
    receives: dict[tuple[str, int, int], deque[int]] = {}
    for at, (post, symptom) in enumerate(unmatched):
        if symptom.name == "unmatched_recv":
            for key in _ends(post):
                receives.setdefault(key, deque()).append(at)
    taken: set[int] = set()
    for post, symptom in unmatched:
        if symptom.name != "unmatched_send":
            continue
        queues = [receives.get(key, deque()) for key in _ends(post)]
        for queue in queues:
            while queue and queue[0] in taken:
                queue.popleft()
        nearest = next((queue[0] for queue in queues if queue), None)
        if nearest is None:
            found.append(symptom)
            continue
        taken.add(nearest)
        receive, lacking = unmatched[nearest]
        clauses = (
            Clause(_does(post), post.call.mark, awaits=_awaits(post)),
            Clause(_does(receive), receive.call.mark, joint=", and ", awaits=_awaits(receive)),
            Clause("neither message has its other end"),
        )
        found += [replace(each, kind=symptom.kind, clauses=clauses) for each in (symptom, lacking)]
    left = (
        symptom
        for at, (_, symptom) in enumerate(unmatched)
        if symptom.name == "unmatched_recv" and at not in taken
    )
    return [*found, *left]


def _ends(post: MessagePost) -> tuple[tuple[str, int, int], ...]:
    """Return what a send and a receive have in common that miss each other: one end, and the tag.

    The end is that of the sender (1), or that of the receiver (0).
    """
    message, peer = post.message, post.message.peer
    assert peer is not None
    source, destination = (post.rank, peer) if message.sends else (peer, post.rank)
    name = f"{post.group.key}:{message.tag}"
    return (name, 1, source), (name, 0, destination)


def _does(post: MessagePost) -> str:
    verb = "sends to" if post.message.sends else "receives from"
    return f"rank {post.rank} {verb} rank {post.message.peer} in `{post.call.label}`"


def _awaits(post: MessagePost) -> AwaitedAct | None:
    """Return who should be at the other end; None where anyone may."""
    if post.message.peer is None:
        return None
    act = "receive" if post.message.sends else "send"
    return AwaitedAct(rank=post.rank, peer=post.message.peer, act=act, call=post.call.label)


def _report_unmatched(run: Run, futures: Futures, post: MessagePost) -> Symptom:
    """Return the symptom of one message without its other end.

    The closest explanation that there is.

        the peer has it under another tag     tag_mismatch
        the peer has it in another group      unmatched_send or unmatched_recv, with that group
        the peer has nothing like it          unmatched_send or unmatched_recv
    """
    sends = post.message.sends
    step = post.call.step
    other = _find_other_tag(run, futures, post)
    if other is not None:
        peer, tag, where = other
        first, second = (post.rank, peer) if sends else (peer, post.rank)
        mine, theirs = ("sends", "receives") if sends else ("receives", "sends")
        other_end = " from anyone" if post.message.peer is None else ""
        return Symptom(
            name="tag_mismatch",
            clauses=(
                Clause(
                    f"rank {post.rank} {mine}{other_end} with tag {post.message.tag} in "
                    f"`{post.call.label}`",
                    post.call.mark,
                ),
                Clause(f"rank {peer} {theirs} with tag {tag}", where, joint=", "),
            ),
            kind=f"tag:{post.group.key}:{first}:{second}",
            index=step.index,
            iteration=post.call.iteration,
            ranks=tuple(sorted({post.rank, peer})),
            also=("unmatched_send", "unmatched_recv", "circular_wait"),
        )
    elsewhere = _find_other_group(run, futures, post)
    here = tell_group(run, post)
    if elsewhere is not None:
        here, (there, where) = f" on {post.group.name}", elsewhere
    other_end = "anyone" if post.message.peer is None else f"rank {post.message.peer}"
    mine, lacks = ("sends to", "receives it") if sends else ("receives from", "sends")
    words = f"rank {post.rank} {mine} {other_end}{here} in `{post.call.label}`"
    end = f", and {other_end} never {lacks}"
    clauses = [Clause(words, post.call.mark, end, awaits=_awaits(post))]
    if elsewhere is not None:
        does = f"receives from rank {post.rank}" if sends else f"sends to rank {post.rank}"
        clauses = [
            Clause(words, post.call.mark, awaits=_awaits(post)),
            Clause(f"{other_end} {does}{there} only", where, joint=", and "),
            Clause("messages of two groups never meet"),
        ]
    name = "unmatched_send" if sends else "unmatched_recv"
    return Symptom(
        name=name,
        clauses=tuple(clauses),
        kind=f"{name}:{step.index}:{post.rank}",
        index=step.index,
        iteration=post.call.iteration,
        ranks=(post.rank,) if post.message.peer is None else (post.rank, post.message.peer),
        odd=() if post.message.peer is None else (post.message.peer,),
        also=("buffering_hazard",) if sends else ("missing_participant",),
    )


def _find_other_tag(
    run: Run, futures: Futures, post: MessagePost
) -> tuple[int, int, Mark | None] | None:
    """Return a peer, the tag of the message that it has for this rank under another tag, where."""
    tag = post.message.tag
    for peer, group, message, call in _opposite(run, futures, post):
        if group == post.group and message.tag != tag:
            return peer, message.tag, call.mark
    return None


def _find_other_group(
    run: Run, futures: Futures, post: MessagePost
) -> tuple[str, Mark | None] | None:
    """Return ` on GROUP` where a named peer has the opposite of a message, and the place."""
    if post.message.peer is None:
        return None
    for _, group, message, call in _opposite(run, futures, post):
        if group != post.group and message.tag == post.message.tag:
            return f" on {group.name}", call.mark
    return None


def _opposite(
    run: Run, futures: Futures, post: MessagePost
) -> Iterator[tuple[int, Group, Message, Call]]:
    """Yield the messages that would be the other end of one, but for tag and group."""
    mine = post.message
    for other in run.mailbox.find_left(mine.peer, sends=not mine.sends):
        if _meets(other.message.peer, post.rank):
            yield other.rank, other.group, other.message, other.call
    members = post.group.ranks if mine.peer is None else (mine.peer,)
    for peer in members if len(members) <= MOST_PEERS else ():
        for call in futures.of(peer) if peer != post.rank else ():
            for message in messages_of(call):
                if message.sends != mine.sends and _meets(message.peer, post.rank):
                    yield peer, call.entry.group, message, call


def _meets(peer: int | None, rank: int) -> bool:
    """Whether a message to or from `peer` (None: anyone) may be one with `rank`."""
    return peer is None or peer == rank
