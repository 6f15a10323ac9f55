"""Messages that do not meet: another tag, dtype or size, a side that is absent or astray."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from benchmarks.scoreboard.letters import RECEIVING, SENDING, post
from benchmarks.scoreboard.sketch import (
    ANYTHING,
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

TAGS = ((0, 1), (7, 3), (1, 0))
SIDES = tuple(product(SENDING, RECEIVING))


def programs() -> Iterator[Program]:
    """Yield messages with wrong tags, sizes and dtypes, and those of which one side is absent."""
    for number, ((sending, receiving), place) in enumerate(product(SIDES, PLACES)):
        yield from _tags(number, place, sending, receiving)
        yield from _misfit(number, place, sending, receiving)
    for number, (how, place) in enumerate(product((*SENDING, *RECEIVING[:2]), PLACES)):
        yield from _alone(number, place, how)
    for number, ((sending, receiving), place) in enumerate(product(SIDES, (THREE, FOUR, SPARSE))):
        yield from _astray(number, place, sending, receiving)


def _tags(number: int, place: Place, sending: str, receiving: str) -> Iterator[Program]:
    """Sent with one tag, received with another."""
    one, two = TAGS[number % len(TAGS)]
    ends = (place.members[0], place.members[-1])
    source, target = ends if number % 2 else ends[::-1]

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        sketch.tensor("letter", "full(3, rank)")
        there = two if wrong else one
        sides = [(source, target, sending, True, one), (target, source, receiving, False, there)]
        order = sides if number % 4 in {0, 1} else sides[::-1]
        for name, (rank, peer, how, sends, tag) in zip(("the call", "it"), order, strict=True):
            post(sketch, name, how, rank=rank, peer=peer, tensor="letter", sends=sends, tag=tag)
        return sketch

    return twins(
        build,
        name=f"{sending} with tag {one}, {receiving} with {two} in a {place.name}",
        family="tag",
        expected=("tag_mismatch",),
        first="the call",
        outcomes=DEADLOCK,
    )


def _misfit(number: int, place: Place, sending: str, receiving: str) -> Iterator[Program]:
    """The receiver's buffer has another dtype, or another size, than the message."""
    source, target = place.members[0], place.members[-1]
    by_type = number % 2 == 0
    expected = "dtype_mismatch" if by_type else "shape_mismatch"

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        rows = 3 + (number % 4 - 2 if wrong and not by_type else 0)
        dtype = "int32" if wrong and by_type else "float32"
        sketch.tensor(
            "letter",
            {target: {"dtype": dtype, "value": f"zeros({rows})"}, "else": "full(3, rank + 1)"},
        )
        post(sketch, "the call", sending, rank=source, peer=target, tensor="letter", sends=True)
        post(sketch, "other", receiving, rank=target, peer=source, tensor="letter", sends=False)
        return sketch

    return twins(
        build,
        name=f"{sending} into {receiving} of another {'dtype' if by_type else 'size'}"
        f" in a {place.name}",
        family="datatype" if by_type else "shape",
        expected=(expected,),
        first="the call",
        outcomes=ANYTHING,
    )


def _alone(number: int, place: Place, how: str) -> Iterator[Program]:
    """One side of a message without the other."""
    sends = "send" in how or how == "batch"
    ends = (place.members[0], place.members[-1])
    rank, peer = ends if number % 2 else ends[::-1]

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        sketch.tensor("letter", "full(3, rank)")
        post(sketch, "the call", how, rank=rank, peer=peer, tensor="letter", sends=sends)
        if not wrong:
            answer = "recv" if sends else "send"
            post(sketch, "it", answer, rank=peer, peer=rank, tensor="letter", sends=not sends)
        return sketch

    return twins(
        build,
        name=f"{how} of rank {rank} alone in a {place.name}",
        family="call matching",
        expected=("unmatched_send" if sends else "unmatched_recv",),
        first="the call",
        outcomes=DEADLOCK,
    )


def _astray(number: int, place: Place, sending: str, receiving: str) -> Iterator[Program]:
    """A message goes to another rank than the one that waits for it."""
    source, target, wrong_one = place.members[0], place.members[1], place.members[2]

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        sketch.tensor("letter", "full(3, rank)")
        goal = wrong_one if wrong else target
        post(sketch, "the call", sending, rank=source, peer=goal, tensor="letter", sends=True)
        post(sketch, "it", receiving, rank=target, peer=source, tensor="letter", sends=False)
        return sketch

    return twins(
        build,
        name=f"{sending} to the wrong rank, {receiving} on the right one in a {place.name}",
        family="call matching",
        expected=("unmatched_send", "unmatched_recv"),
        first="the call",
        outcomes=DEADLOCK,
    )
