"""Buffering hazards, and rings of receives that no buffer helps."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from benchmarks.scoreboard.calling import call
from benchmarks.scoreboard.kinds import KINDS, Kind
from benchmarks.scoreboard.letters import RECEIVING, SENDING, post
from benchmarks.scoreboard.sketch import (
    DEADLOCK,
    PLACES,
    Place,
    Program,
    Sketch,
    twins,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def programs() -> Iterator[Program]:
    """Yield what only a backend that buffers lets pass, and rings that none lets pass."""
    for number, (place, how, back) in enumerate(
        product(PLACES, ("send", "isend", "batch"), ("recv", "irecv"))
    ):
        for stride in sorted({1, place.size - 1}):
            yield from _ring(number, place, how, back, stride=stride)
    for number, (place, back) in enumerate(product(PLACES, RECEIVING)):
        for stride in sorted({1, place.size - 1}):
            yield from _receiving_ring(number, place, back, stride=stride)
    for number, (place, how) in enumerate(product(PLACES, SENDING)):
        yield from _crossed_tags(number, place, how)
    meeting = [kind for kind in KINDS if kind.role == "all"]
    for number, (kind, place) in enumerate(product(meeting, PLACES[:5])):
        yield from _before_collective(number, place, kind)


def _ring(number: int, place: Place, how: str, back: str, *, stride: int) -> Iterator[Program]:
    """Every member sends before it receives; in the twin one of them receives first."""
    members = place.members

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        sketch.tensor("mine", "full(3, rank)")
        sketch.tensor("theirs", "zeros(3)")

        def send(at: int) -> None:
            peer = members[(at + stride) % place.size]
            post(
                sketch,
                f"send {at}",
                how,
                rank=members[at],
                peer=peer,
                tensor="mine",
                sends=True,
            )

        def receive(at: int) -> None:
            peer = members[(at - stride) % place.size]
            post(
                sketch,
                f"receive {at}",
                back,
                rank=members[at],
                peer=peer,
                tensor="theirs",
                sends=False,
            )

        for at in range(place.size):
            first, second = (send, receive) if wrong or at else (receive, send)
            first(at)
            second(at)
        return sketch

    return twins(
        build,
        name=f"everyone {how}s to +{stride} before {back} in a {place.name}",
        family="buffering hazard",
        expected=("circular_wait", "buffering_hazard"),
        first="send 0",
        outcomes=DEADLOCK,
    )


def _receiving_ring(number: int, place: Place, how: str, *, stride: int) -> Iterator[Program]:
    """Every member receives before it sends: no buffer helps."""
    members = place.members

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        sketch.tensor("mine", "full(3, rank)")
        sketch.tensor("theirs", "zeros(3)")
        for at, rank in enumerate(members):
            ahead, behind = members[(at + stride) % place.size], members[(at - stride) % place.size]
            handle = f"receive_{at}"
            name = f"receive {at}"
            post(
                sketch,
                name,
                how if wrong or how == "batch" else "irecv",
                rank=rank,
                peer=behind,
                tensor="theirs",
                sends=False,
                wait=wrong,
            )
            post(sketch, f"send {at}", "send", rank=rank, peer=ahead, tensor="mine", sends=True)
            if not wrong:
                sketch.step(f"{name}, waited", ranks=rank, wait=handle)
        return sketch

    return twins(
        build,
        name=f"everyone {how}s from -{stride} before it sends in a {place.name}",
        family="call matching",
        expected=("circular_wait",),
        first="receive 0",
        outcomes=DEADLOCK,
    )


def _crossed_tags(number: int, place: Place, how: str) -> Iterator[Program]:
    """Two messages, taken in the other order than they are sent; in the twin they are started."""
    source, target = place.members[-1], place.members[0]

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        for name in ("red", "blue"):
            sketch.tensor(name, "full(3, rank)")
        sending = how if wrong or how != "send" else "isend"
        for tag, name in enumerate(("red", "blue"), start=1):
            post(
                sketch,
                f"send {name}",
                sending,
                rank=source,
                peer=target,
                tensor=name,
                sends=True,
                tag=tag,
                wait=wrong,
            )
        for tag, name in ((2, "blue"), (1, "red")):
            post(
                sketch,
                f"take {name}",
                "recv",
                rank=target,
                peer=source,
                tensor=name,
                sends=False,
                tag=tag,
            )
        if not wrong:
            sketch.step("the wait", ranks=source, wait=["send_red", "send_blue"])
        return sketch

    return twins(
        build,
        name=f"two messages by {how}, taken in the other order, in a {place.name}",
        family="buffering hazard",
        expected=("circular_wait", "buffering_hazard"),
        first="send red",
        outcomes=DEADLOCK,
    )


def _before_collective(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """A send before a collective, its receive after it."""
    source, target = place.members[0], place.members[-1]

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        sketch.tensor("letter", "full(3, rank)")

        def receive() -> None:
            post(sketch, "take", "recv", rank=target, peer=source, tensor="letter", sends=False)

        post(sketch, "the send", "send", rank=source, peer=target, tensor="letter", sends=True)
        if not wrong:
            receive()
        call(sketch, kind, "the call", ranks=list(place.ranks))
        if wrong:
            receive()
        return sketch

    return twins(
        build,
        name=f"a send before {kind.name}, its receive after it, in a {place.name}",
        family="buffering hazard",
        expected=("circular_wait", "buffering_hazard"),
        first="the send",
        outcomes=DEADLOCK,
    )
