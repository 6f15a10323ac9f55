"""Programs that rely on what need not be: a buffer, or that a collective synchronises, or not."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from benchmarks.scoreboard.collectives import MEETING, ROOTED, Kind, call
from benchmarks.scoreboard.program import (
    COMPLETES,
    DEADLOCK,
    PLACES,
    RECEIVES,
    SENDS,
    Draft,
    Place,
    Program,
    Writer,
    twins,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

BUFFERS = ("circular_wait", "buffering_hazard")


def programs() -> Iterator[Program]:
    """Yield what only a backend that buffers lets pass, and rings that none lets pass."""
    for number, (place, how, back) in enumerate(product(PLACES, SENDS, RECEIVES[:2])):
        for stride in sorted({1, place.size - 1}):
            yield from _ring(number, place, how, back, stride)
    for number, (place, back) in enumerate(product(PLACES, RECEIVES)):
        for stride in sorted({1, place.size - 1}):
            yield from _receiving_ring(number, place, back, stride)
    for number, (place, how) in enumerate(product(PLACES, SENDS)):
        yield from _crossed_tags(number, place, how)
    for number, (kind, place) in enumerate(product(MEETING, PLACES[:5])):
        name = f"a send before {kind.name}, its receive after it, in a {place.name}"
        source, target = place.ends
        write = _send_before(kind, source, target, "the send")
        yield from _hazard(write, place, number, name, "the send")


def synchrony() -> Iterator[Program]:
    """Yield rooted collectives crossed by a message between the root and the last leaf.

    One of the two needs no other rank, and may leave early (MPI 4.1, 6.14).
    """
    for number, (kind, place) in enumerate(product(ROOTED, PLACES)):
        early, late = place.ends if kind.role == "src" else place.ends[::-1]
        yield from _overtaken(number, place, kind, early, late)
        name = (
            f"a send before {kind.name} by who is needed, its receive after it, in a {place.name}"
        )
        write = _send_before(kind, early, late, "send")
        yield from _hazard(write, place, number, name, "send")


def _hazard(write: Writer, place: Place, number: int, name: str, first: str) -> Iterator[Program]:
    return twins(
        write,
        place,
        number,
        name=name,
        family="buffering hazard",
        expected=BUFFERS,
        first=first,
        outcomes=DEADLOCK,
    )


def _ring(number: int, place: Place, how: str, back: str, stride: int) -> Iterator[Program]:
    """Every member sends before it receives; in the twin one of them receives first."""

    def write(draft: Draft, *, wrong: bool) -> None:
        draft.tensor("mine")
        draft.tensor("theirs", value="zeros(3)")
        for at, rank in enumerate(place.members):
            last = not wrong and at == 0
            if not last:
                draft.send(f"send {at}", how, rank, place.member(at + stride), "mine")
            draft.receive(f"receive {at}", back, rank, place.member(at - stride), "theirs")
            if last:
                draft.send(f"send {at}", how, rank, place.member(at + stride), "mine")

    name = f"everyone {how}s to +{stride} before {back} in a {place.name}"
    return _hazard(write, place, number, name, "send 0")


def _receiving_ring(number: int, place: Place, how: str, stride: int) -> Iterator[Program]:
    """Every member receives before it sends: no buffer helps."""
    started = how if how == "batch" else "irecv"

    def write(draft: Draft, *, wrong: bool) -> None:
        draft.tensor("mine")
        draft.tensor("theirs", value="zeros(3)")
        for at, rank in enumerate(place.members):
            name, behind = f"receive {at}", place.member(at - stride)
            draft.receive(name, how if wrong else started, rank, behind, "theirs", wait=wrong)
            draft.send(f"send {at}", "send", rank, place.member(at + stride), "mine")
            if not wrong:
                draft.step(f"{name}, waited", ranks=rank, wait=f"receive_{at}")

    return twins(
        write,
        place,
        number,
        name=f"everyone {how}s from -{stride} before it sends in a {place.name}",
        family="call matching",
        expected=("circular_wait",),
        first="receive 0",
        outcomes=DEADLOCK,
    )


def _crossed_tags(number: int, place: Place, how: str) -> Iterator[Program]:
    """Two messages, taken in the other order than they are sent; in the twin they are started."""
    target, source = place.ends
    started = "isend" if how == "send" else how

    def write(draft: Draft, *, wrong: bool) -> None:
        draft.tensor("red", "blue")
        for tag, name in ((1, "red"), (2, "blue")):
            sends = how if wrong else started
            draft.send(f"send {name}", sends, source, target, name, tag=tag, wait=wrong)
        for tag, name in ((2, "blue"), (1, "red")):
            draft.receive(f"take {name}", "recv", target, source, name, tag=tag)
        if not wrong:
            draft.step("the wait", ranks=source, wait=["send_red", "send_blue"])

    name = f"two messages by {how}, taken in the other order, in a {place.name}"
    return _hazard(write, place, number, name, "send red")


def _send_before(kind: Kind, source: int, target: int, name: str) -> Writer:
    """Return what writes a send before a collective, and its receive after it."""

    def write(draft: Draft, *, wrong: bool) -> None:
        draft.tensor("letter")
        draft.send(name, "send", source, target)
        if not wrong:
            draft.receive("take", "recv", target, source)
        call(draft, kind, "the call", ranks=list(draft.place.ranks))
        if wrong:
            draft.receive("take", "recv", target, source)

    return write


def _overtaken(number: int, place: Place, kind: Kind, early: int, late: int) -> Iterator[Program]:
    """A rank that needs no other must have left the collective for the other one to enter it."""

    def write(draft: Draft, *, wrong: bool) -> None:
        draft.tensor("letter")
        if wrong:
            draft.receive("take", "recv", late, early)
        call(draft, kind, "the call", ranks=list(place.ranks))
        draft.send("send", "send", early, late)
        if not wrong:
            draft.receive("take", "recv", late, early)

    return twins(
        write,
        place,
        number,
        name=f"a receive before {kind.name}, its send after it by who needs nobody,"
        f" in a {place.name}",
        family="buffering hazard",
        expected=("buffering_hazard",),
        first="take",
        outcomes=COMPLETES,
    )
