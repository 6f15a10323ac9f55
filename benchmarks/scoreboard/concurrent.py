"""Local concurrency: two operations at once on one tensor, which one of them fills."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from benchmarks.scoreboard.calling import call
from benchmarks.scoreboard.kinds import TENSOR_KINDS, Kind
from benchmarks.scoreboard.letters import post
from benchmarks.scoreboard.sketch import COMPLETES, PLACES, Place, Program, Sketch, twins

if TYPE_CHECKING:
    from collections.abc import Iterator

#: collectives that store into their `x`
IN_PLACE = tuple(kind for kind in TENSOR_KINDS if "x" in kind.writes and kind.name != "reduce")
#: what two messages of one rank on one tensor are: (of the first, of the second)
TWO_AT_ONCE = (
    ("irecv", "irecv"),
    ("isend", "irecv"),
    ("irecv", "isend"),
    ("batch", "irecv"),
)


def programs() -> Iterator[Program]:
    """Yield the class."""
    for number, (one, two) in enumerate(product(IN_PLACE, TENSOR_KINDS)):
        # the input of all_to_all_single is longer than what the others store into
        if two.name != "all_to_all_single" and ("x" in two.reads or "x" in two.writes):
            yield from _two_collectives(number, PLACES[number % len(PLACES)], one, two)
            yield from _two_collectives(number + 1, PLACES[(number + 3) % len(PLACES)], one, two)
    for number, (pair, place) in enumerate(product(TWO_AT_ONCE, PLACES)):
        for cure in ("tensors of their own", "a wait between", "slices"):
            yield from _two_messages(number, place, pair, cure)
    for number, (kind, place) in enumerate(product(IN_PLACE, PLACES)):
        yield from _message_beside(number, place, kind)


def _two_collectives(number: int, place: Place, one: Kind, two: Kind) -> Iterator[Program]:
    """A second collective on the tensor of a running one; the twin has two, or waits between."""

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        names = call(sketch, one, "the call", number=0, handle="work")
        waits = not wrong and number % 2 == 0
        if waits:
            sketch.step("the wait between", wait="work")
        memory = {"x": names["x"]} if wrong or waits else {}
        held = sketch.tensors[names["x"]]
        call(sketch, two, "the next call", number=1, handle="next", memory=memory)
        if memory:
            sketch.tensors[names["x"]] = held
        sketch.step("the wait", wait=["next"] if waits else ["work", "next"])
        return sketch

    return twins(
        build,
        name=f"{one.name} and {two.name} at once on one tensor in a {place.name}",
        family="local concurrency",
        expected=("buffer_race",),
        first="the next call",
        outcomes=COMPLETES,
    )


def _two_messages(number: int, place: Place, pair: tuple[str, str], cure: str) -> Iterator[Program]:
    """Two messages at once on one tensor, which one of them fills."""
    one, two = place.members[0], place.members[-1]

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        for name in ("both", "own", "far"):
            sketch.tensor(name, "full(4, rank)")
        cured = "" if wrong else cure
        names = {
            "tensors of their own": ("both", "own"),
            "slices": ("both[0:2]", "both[2:4]"),
        }.get(cured, ("both[0:3]", "both[1:4]") if cure == "slices" else ("both", "both"))
        rows = {"both": 4, "own": 4, "both[0:2]": 2, "both[2:4]": 2}
        for at, (how, tensor) in enumerate(zip(pair, names, strict=True)):
            sends = how == "isend"
            post(
                sketch,
                ("the call", "the next call")[at],
                how,
                rank=one,
                peer=two,
                tensor=tensor,
                sends=sends,
                tag=at + 1,
                wait=False,
            )
            if cured == "a wait between" and at == 0:
                _answer(sketch, one, two, pair, 0, rows.get(tensor, 3))
                sketch.step("the wait between", ranks=one, wait="the_call")
        for at, tensor in enumerate(names):
            if cured != "a wait between" or at:
                _answer(sketch, one, two, pair, at, rows.get(tensor, 3))
        last = ["the_next_call"] if cured == "a wait between" else ["the_call", "the_next_call"]
        sketch.step("the wait", ranks=one, wait=last)
        return sketch

    return twins(
        build,
        name=f"{pair[0]} and {pair[1]} at once on one tensor (not {cure}) in a {place.name}",
        family="local concurrency",
        expected=("buffer_race",),
        first="the next call",
        outcomes=COMPLETES,
    )


def _answer(sketch: Sketch, one: int, two: int, pair: tuple[str, str], at: int, rows: int) -> None:
    """Let the peer take its side of message `at`."""
    sends = pair[at] != "isend"
    post(
        sketch,
        f"answer {at}",
        "isend" if sends else "irecv",
        rank=two,
        peer=one,
        tensor=f"far[0:{rows}]" if rows < 4 else "far",
        sends=sends,
        tag=at + 1,
    )


def _message_beside(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """A message out of the tensor that a running collective stores into."""
    one, two = place.members[-1], place.members[0]

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        for name in ("mine", "far"):
            sketch.tensor(name, "full(4, rank)")
        names = call(sketch, kind, "the call", handle="work")
        out = names["x"] if wrong else "mine"
        post(
            sketch, "the next call", "isend", rank=one, peer=two, tensor=out, sends=True, wait=False
        )
        post(sketch, "it", "irecv", rank=two, peer=one, tensor="far", sends=False)
        sketch.step("the wait", wait=["work", "the_next_call"])
        return sketch

    return twins(
        build,
        name=f"a message out of what a running {kind.name} fills in a {place.name}",
        family="local concurrency",
        expected=("buffer_race",),
        first="the next call",
        outcomes=COMPLETES,
    )
