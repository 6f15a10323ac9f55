"""Receives from anyone: races of messages, and programs in which only one can come."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from benchmarks.scoreboard.letters import post
from benchmarks.scoreboard.sketch import (
    ANYTHING,
    COMPLETES,
    FOUR,
    SPARSE,
    THREE,
    Place,
    Program,
    Sketch,
    twins,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACES = (THREE, FOUR, SPARSE)
#: what the twin does instead
CURES = ("named sources", "equal messages", "a tag for each", "one after the other")
SENDING, RECEIVING = ("send", "isend"), ("recv", "irecv")


def programs() -> Iterator[Program]:
    """Yield the class."""
    sides = tuple(product(SENDING, RECEIVING))
    for number, ((sending, receiving), cure, place) in enumerate(product(sides, CURES, PLACES)):
        yield from _both_from_anyone(number, place, sending, receiving, cure)
    for number, ((sending, receiving), place) in enumerate(product(sides, PLACES)):
        for named in place.members[1:]:
            yield from _then_named(number, place, sending, receiving, named)


def _letters(sketch: Sketch, value: str) -> None:
    sketch.tensor("letter", value)
    for at in range(1, sketch.place.size):
        sketch.tensor(f"taken{at}", "zeros(3)")


def _both_from_anyone(
    number: int, place: Place, sending: str, receiving: str, cure: str
) -> Iterator[Program]:
    """The first member takes from anyone what all others send to it, and keeps a copy of each.

    Without the copies it would be no race: what nothing reads is scratch.
    """
    target, *sources = place.members

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        cured = "" if wrong else cure
        _letters(sketch, "full(3, 7)" if cured == "equal messages" else "full(3, rank)")
        for at, source in enumerate(sources, start=1):
            tag = at if cured == "a tag for each" else 0
            post(
                sketch,
                f"send {at}",
                sending,
                rank=source,
                peer=target,
                tensor="letter",
                sends=True,
                tag=tag,
            )
            if cured == "one after the other":
                _take(sketch, receiving, at, None, 0)
                where = {"group": place.group} if place.group else {}
                sketch.step(f"after {at}", barrier=where)
        if cured != "one after the other":
            for at, source in enumerate(sources, start=1):
                tag = at if cured == "a tag for each" else 0
                _take(sketch, receiving, at, source if cured == "named sources" else None, tag)
        kept = {f"kept{at}": f"taken{at}" for at in range(1, place.size)}
        sketch.step("keep", ranks=target, compute=kept)
        return sketch

    return twins(
        build,
        name=f"{sending}s of {len(sources)} ranks into {receiving}s from anyone (not {cure})"
        f" in a {place.name}",
        family="message race",
        expected=("message_race",),
        first="take 1",
        outcomes=COMPLETES,
    )


def _take(sketch: Sketch, how: str, at: int, source: int | None, tag: int) -> None:
    target = sketch.place.members[0]
    post(
        sketch,
        f"take {at}",
        how,
        rank=target,
        peer=source,
        tensor=f"taken{at}",
        sends=False,
        tag=tag,
    )


def _then_named(
    number: int, place: Place, sending: str, receiving: str, named: int
) -> Iterator[Program]:
    """A receive from anyone may take the message that a later, named one wants.

    In the twin the named ones come first, so that one message is left for anyone.
    """
    target, *sources = place.members
    rest = [source for source in sources if source != named]

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        _letters(sketch, "full(3, 7)")
        for at, source in enumerate(sources, start=1):
            post(
                sketch,
                f"send {at}",
                sending,
                rank=source,
                peer=target,
                tensor="letter",
                sends=True,
            )
        wanted: list[int | None] = [named, *[None] * len(rest)]
        for at, peer in enumerate(wanted[::-1] if wrong else wanted, start=1):
            _take(sketch, receiving, at, peer, 0)
        return sketch

    return twins(
        build,
        name=f"{sending}s into {receiving}s from anyone, then from {named}, in a {place.name}",
        family="message race",
        expected=("message_race",),
        allowed=("unmatched_send", "unmatched_recv", "circular_wait"),
        first="take 1",
        outcomes=ANYTHING,
    )
