"""Messages that miss each other in another group, and batches that do not mirror each other."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from benchmarks.scoreboard.communicators import SAME_THREE, SAME_TWO, SMALLER
from benchmarks.scoreboard.sketch import (
    DEADLOCK,
    FOUR,
    PLACES,
    SPARSE,
    THREE,
    Place,
    Program,
    Sketch,
    twins,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

#: (what sends, what receives): blocking, and started and waited for
SIDES = tuple(product(("send", "isend"), ("recv", "irecv")))


def programs() -> Iterator[Program]:
    """Yield messages across groups (communicator) and lopsided batches (call matching)."""
    for number, (side, place) in enumerate(product(SIDES, (SAME_TWO, SAME_THREE, SMALLER))):
        for other in ("other", None):
            yield from _across(number, place, side, other)
    for number, place in enumerate(PLACES):
        for drops in ("isend", "irecv"):
            yield from _lopsided(number, place, drops)
    for number, place in enumerate((THREE, FOUR, SPARSE)):
        yield from _wrong_neighbour(number, place)


def _across(
    number: int, place: Place, side: tuple[str, str], other: str | None
) -> Iterator[Program]:
    """Sent on one group, received on another that has both ranks as well (None: the world)."""
    source, target = place.members[0], place.members[1]
    if place is SMALLER and other is None:
        source, target = target, source

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        sketch.tensor("letter", "full(3, rank)")
        sends: dict[str, Any] = {"tensor": "letter", "dst": target, "group": "one"}
        takes: dict[str, Any] = {"tensor": "letter", "src": source, "group": "one"}
        if wrong:
            takes |= {"group": other or "world"}
        for name, rank, how, action in (
            ("the call", source, side[0], sends),
            ("it", target, side[1], takes),
        ):
            handle = f"{how}_work" if how.startswith("i") else None
            sketch.step(name, ranks=rank, handle=handle, **{how: action})
        for how, rank in zip(side, (source, target), strict=True):
            if how.startswith("i"):
                sketch.step(f"wait of {rank}", ranks=rank, wait=f"{how}_work")
        return sketch

    return twins(
        build,
        name=f"{side[0]} on one, {side[1]} on {other or 'the world'} of {place.name}",
        family="communicator",
        expected=("unmatched_send", "unmatched_recv"),
        first="the call",
        outcomes=DEADLOCK,
    )


def _batch(
    sketch: Sketch, name: str, rank: int, items: list[tuple[str, int]], tensors: dict[str, str]
) -> None:
    group = {"group": sketch.place.group} if sketch.place.group else {}
    batch = [{"op": word, "tensor": tensors[word], "peer": peer, **group} for word, peer in items]
    sketch.step(name, ranks=rank, handle="batch", batch_isend_irecv=batch)


def _exchange(sketch: Sketch, spoil: dict[int, list[tuple[str, int]]]) -> None:
    """Let everyone send to the next and receive from the one before, in one batch each."""
    members = sketch.place.members
    sketch.tensor("mine", "full(3, rank)")
    sketch.tensor("theirs", "zeros(3)")
    tensors = {"isend": "mine", "irecv": "theirs"}
    for at, rank in enumerate(members):
        ahead, behind = members[(at + 1) % len(members)], members[at - 1]
        items = spoil.get(at, [("isend", ahead), ("irecv", behind)])
        _batch(sketch, f"batch {at}", rank, items, tensors)
    sketch.step("the wait", ranks=list(members), wait="batch")


def _lopsided(number: int, place: Place, drops: str) -> Iterator[Program]:
    """The first member leaves one side of the exchange out of its batch."""
    ahead, behind = place.members[1], place.members[-1]
    kept = [("irecv", behind)] if drops == "isend" else [("isend", ahead)]
    first = f"batch {1 if drops == 'isend' else place.size - 1}"

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        _exchange(sketch, {0: kept} if wrong else {})
        return sketch

    return twins(
        build,
        name=f"a batch without its {drops} in a {place.name}",
        family="call matching",
        expected=("unmatched_recv" if drops == "isend" else "unmatched_send",),
        first=first,
        outcomes=DEADLOCK,
    )


def _wrong_neighbour(number: int, place: Place) -> Iterator[Program]:
    """The first member sends to the one before instead of the next."""
    behind = place.members[-1]

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        _exchange(sketch, {0: [("isend", behind), ("irecv", behind)]} if wrong else {})
        return sketch

    return twins(
        build,
        name=f"a batch to the wrong neighbour in a {place.name}",
        family="call matching",
        expected=("unmatched_send", "unmatched_recv"),
        first="batch 0",
        outcomes=DEADLOCK,
    )
