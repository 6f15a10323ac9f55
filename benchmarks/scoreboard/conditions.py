"""Call matching that depends on data, on loops, and on undefined values."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from benchmarks.scoreboard.calling import call
from benchmarks.scoreboard.calls import without
from benchmarks.scoreboard.kinds import KINDS, REDUCE, TENSOR_KINDS, Kind, Spec
from benchmarks.scoreboard.sketch import (
    COMPLETES,
    FOUR,
    PLACES,
    SPARSE,
    TWO,
    Place,
    Program,
    Sketch,
    twins,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FAMILY = "call matching"
#: collectives to which every member contributes its `x`, of a reduction's own shape
READERS = tuple(
    kind
    for kind in TENSOR_KINDS
    if kind.name in {"all_reduce", "reduce", "all_gather", "all_gather_single", "gather"}
)


def programs() -> Iterator[Program]:
    """Yield the programs."""
    for number, (kind, place) in enumerate(product(KINDS, (TWO, FOUR, SPARSE))):
        yield from _on_data(number, place, kind)
        yield from _early_return(number, place, kind)
    for number, (kind, place) in enumerate(product(KINDS, (TWO, SPARSE))):
        yield from _uneven_loop(number, place, kind)
    for number, (kind, place) in enumerate(product(READERS, PLACES)):
        yield from _reads_undefined(number, place, kind)


def _on_data(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """Who takes the call depends on what it holds; one member holds something else."""
    at = number % place.size
    odd = place.members[at]

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        sketch.tensor("loss", {odd: [0], "else": [1]} if wrong else [1])
        call(sketch, kind, "the call")
        held = "loss[0] > 0"
        sketch.steps[-1]["ranks"] = held if place.group is None else f"rank != 1 and {held}"
        return sketch

    return twins(
        build,
        name=f"{kind.name} if the loss allows it, not on rank {odd} of a {place.name}",
        family=FAMILY,
        expected=("missing_participant",),
        first="the call",
        outcomes=without(kind, at),
    )


def _early_return(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """One member returns after the first of three calls: the second is where it is missed."""
    at = number % place.size
    odd = place.members[at]

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        for round_ in range(3):
            ranks = place.others(odd) if wrong and round_ else list(place.ranks)
            call(sketch, kind, f"call {round_}", number=round_, ranks=ranks, spec=Spec(rows=1))
        return sketch

    return twins(
        build,
        name=f"rank {odd} returns after the first {kind.name} in a {place.name}",
        family=FAMILY,
        expected=("missing_participant",),
        first="call 1",
        outcomes=without(kind, at),
    )


def _uneven_loop(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """A loop whose number of rounds depends on the rank: one has fewer batches than the others."""
    at = number % place.size
    odd = place.members[at]

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        call(sketch, kind, "the call", spec=Spec(rows=1))
        body = sketch.steps.pop()
        rounds = f"3 - (rank == {odd})" if wrong else "3"
        loop: dict[str, Any] = {"for": {"round": f"range({rounds})"}, "steps": [body]}
        sketch.steps.append(loop)
        return sketch

    # in what `reduce` leaves elsewhere the next round would read undefined values
    undefined = kind is REDUCE
    return (
        iter(())
        if undefined
        else twins(
            build,
            name=f"a loop over {kind.name}, a round less on rank {odd} of a {place.name}",
            family=FAMILY,
            expected=("missing_participant",),
            first="the call",
            outcomes=without(kind, at),
        )
    )


def _reads_undefined(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """A collective over what `reduce` leaves on other ranks than its destination."""

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        rows = Spec(rows=place.size)
        call(sketch, REDUCE, "the reduction", number=0, spec=rows)
        held = sketch.tensors["x0"]
        if not wrong:
            sketch.step("afresh", compute={"x0": f"full({place.size}, rank)"})
        call(sketch, kind, "the call", number=1, spec=rows, memory={"x": "x0"})
        sketch.tensors["x0"] = held
        return sketch

    return twins(
        build,
        name=f"{kind.name} of what a reduce leaves elsewhere in a {place.name}",
        family="undefined value",
        expected=("undefined_read",),
        first="the call",
        outcomes=COMPLETES,
    )
