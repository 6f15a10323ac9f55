"""Programs that rely on what a collective need not do: synchronise, or not (MPI 4.1, 6.14)."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from benchmarks.scoreboard.calling import call
from benchmarks.scoreboard.kinds import KINDS, Kind
from benchmarks.scoreboard.letters import post
from benchmarks.scoreboard.sketch import COMPLETES, DEADLOCK, PLACES, Place, Program, Sketch, twins

if TYPE_CHECKING:
    from collections.abc import Iterator

FAMILY = "buffering hazard"


def programs() -> Iterator[Program]:
    """Yield rooted collectives crossed by a message between the root and the last leaf."""
    rooted = [kind for kind in KINDS if kind.rooted]
    for number, (kind, place) in enumerate(product(rooted, PLACES)):
        yield from _overtaken(number, place, kind)
        yield from _needed(number, place, kind)


def _ends(place: Place, kind: Kind) -> tuple[int, int]:
    """Return the rank that may leave early, as it waits for none, and the one that waits for it."""
    root, leaf = place.members[0], place.members[-1]
    return (root, leaf) if kind.role == "src" else (leaf, root)


def _overtaken(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """A rank that needs no other must have left the collective for the other one to enter it."""
    early, late = _ends(place, kind)

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        sketch.tensor("letter", "full(3, rank)")

        def receive() -> None:
            post(sketch, "take", "recv", rank=late, peer=early, tensor="letter", sends=False)

        if wrong:
            receive()
        call(sketch, kind, "the call", ranks=list(place.ranks))
        post(sketch, "send", "send", rank=early, peer=late, tensor="letter", sends=True)
        if not wrong:
            receive()
        return sketch

    return twins(
        build,
        name=f"a receive before {kind.name}, its send after it by who needs nobody,"
        f" in a {place.name}",
        family=FAMILY,
        expected=("buffering_hazard",),
        first="take",
        outcomes=COMPLETES,
    )


def _needed(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """Who is needed sends before the collective what the other one takes only after it."""
    needed, waiting = _ends(place, kind)

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        sketch.tensor("letter", "full(3, rank)")

        def receive() -> None:
            post(sketch, "take", "recv", rank=waiting, peer=needed, tensor="letter", sends=False)

        post(sketch, "send", "send", rank=needed, peer=waiting, tensor="letter", sends=True)
        if not wrong:
            receive()
        call(sketch, kind, "the call", ranks=list(place.ranks))
        if wrong:
            receive()
        return sketch

    return twins(
        build,
        name=f"a send before {kind.name} by who is needed, its receive after it, in a {place.name}",
        family=FAMILY,
        expected=("circular_wait", "buffering_hazard"),
        first="send",
        outcomes=DEADLOCK,
    )
