"""Which fact of a backend makes a program come to something else there, in phrases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.reference.telling import place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runner.reference.connecting import Hosts
    from runner.reference.posts import Posted, Work
    from runner.reference.reading import Buffer
    from runner.reference.schedules import Rest

#: phrases of one kind: more would say the same of other steps
TOLD = 2

GARBLED = (
    "two ranks whose first calls to each other are no pair of a send and its receive take their "
    "offers to connect for answers"
)


def told(main: Rest, others: Sequence[Rest], hosts: Hosts | None) -> tuple[str, ...]:
    """Return the facts that show in how a program goes: what moves it, or what holds it up."""
    found = [*list(_split(main))[:TOLD], *list(_crossed(main))[:TOLD]]
    if hosts and hosts.garbled:
        found.append(GARBLED)
    if main.outcome == "completes":
        found += list(_early(main))[:TOLD]
    else:
        found += [*list(_connecting(hosts))[:TOLD], *list(_behind(main))[:TOLD]]
    for other in others:
        if other.outcome != main.outcome:
            found += list(_otherwise(main, other))[:TOLD]
    return tuple(dict.fromkeys(found))


def _split(main: Rest) -> Iterator[str]:
    simulation = main.simulation
    if not simulation.reading.splits:
        return
    for post in simulation.creating:
        yield (
            f"`{post.call.label}`{place(post)} on rank {post.rank} is split off the world's "
            "communicator, which every rank of the world has to call, member or not"
        )
    for here in simulation.creations.all():
        if len({creating.group.ranks for creating in here.values()}) > 1:
            yield (
                "ranks that name other members of a new group are each split off the world's "
                "communicator by themselves"
            )


def _connecting(hosts: Hosts | None) -> Iterator[str]:
    for _, source, target in hosts.missing if hosts else ():
        yield (
            f"the first message from rank {source} to rank {target} waits on the host for its "
            "receive, whatever its size"
        )


def _behind(main: Rest) -> Iterator[str]:
    """Tell of what never began: one for each call that it is behind."""
    firsts: set[tuple[int, int]] = set()
    for work, first in main.simulation.streams.behind():
        if not first.done and (first.rank, first.number) not in firsts:
            firsts.add((first.rank, first.number))
            yield (
                f"`{work.call.label}`{place(work)} of rank {work.rank} begins only once "
                f"`{first.call.label}`{place(first)} is done: calls of one group run in the order "
                "of one stream"
            )


def _crossed(main: Rest) -> Iterator[str]:
    for send, receive in main.simulation.crossed:
        yield (
            f"`{receive.call.label}`{place(receive)} with tag {receive.message.tag} takes what "
            f"rank {send.rank} sends with tag {send.message.tag}: tags are ignored, messages of "
            "two ranks match in order"
        )


def _early(main: Rest) -> Iterator[str]:
    buffer = main.simulation.reading.buffer
    for send in sorted(main.simulation.early, key=lambda send: send.call.asynchronous):
        yield f"`{send.call.label}`{place(send)} leaves rank {send.rank} early{_bounds(buffer)}"


def _bounds(buffer: Buffer | None) -> str:
    if buffer is None or buffer.size_bytes is None:
        return ""
    return f": sends of up to {buffer.size_bytes} bytes do"


def _otherwise(main: Rest, other: Rest) -> Iterator[str]:
    """Tell of what a backend may do and need not."""
    here, there = main.simulation, other.simulation
    if there.reading.order != here.reading.order:
        for work, first in there.streams.behind():
            if not first.done:
                yield _launched(work, first)
        return
    taken = {_instance(post) for post in here.early}
    for send in there.early:
        if _instance(send) not in taken:
            yield (
                f"`{send.call.label}`{place(send)} of rank {send.rank} may leave early, and need "
                f"not{_bounds(here.reading.buffer)} for sure"
            )


def _launched(work: Work, first: Work) -> str:
    return (
        f"rank {work.rank} launches `{work.call.label}`{place(work)} after "
        f"`{first.call.label}`{place(first)}, others the other way round: a device may run the "
        "calls of all groups in the order in which its host launched them"
    )


def _instance(post: Posted) -> tuple[int, int, tuple[int, ...]]:
    return post.rank, post.call.step.index, post.call.iteration
