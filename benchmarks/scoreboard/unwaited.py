"""Missing waits: work that is started, and that no rank waits for."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from benchmarks.scoreboard.calling import call
from benchmarks.scoreboard.kinds import BARRIER, TENSOR_KINDS, Kind
from benchmarks.scoreboard.letters import post
from benchmarks.scoreboard.sketch import COMPLETES, PLACES, TWO, Place, Program, Sketch, twins

if TYPE_CHECKING:
    from collections.abc import Iterator


def programs() -> Iterator[Program]:
    """Yield the class."""
    for number, (kind, place) in enumerate(product((*TENSOR_KINDS, BARRIER), PLACES)):
        for who in ("nobody", "not one"):
            yield from _collective_unwaited(number, place, kind, who)
    for number, (how, place) in enumerate(product(("isend", "irecv", "batch"), PLACES)):
        for twice in (False, True):
            yield from _message_unwaited(number, place, how, twice=twice)
    for number, kind in enumerate((*TENSOR_KINDS, BARRIER)):
        yield from _overwritten(number, TWO, kind)


def _collective_unwaited(number: int, place: Place, kind: Kind, who: str) -> Iterator[Program]:
    """Nobody waits for a collective, or one member does not."""
    odd = place.members[number % place.size]

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        call(sketch, kind, "the call", handle="work")
        sketch.step("meanwhile", compute={"done": "1.0 * rank"})
        if not wrong:
            sketch.step("the wait", wait="work")
        elif who == "not one":
            sketch.step("the wait", ranks=place.others(odd), wait="work")
        return sketch

    return twins(
        build,
        name=f"{kind.name} that {who} waits for in a {place.name}",
        family="missing wait",
        expected=("missing_wait",),
        first="the call",
        outcomes=COMPLETES,
    )


def _message_unwaited(number: int, place: Place, how: str, *, twice: bool) -> Iterator[Program]:
    """A message whose own side is not waited for; `twice`: only the first of two."""
    sends = how != "irecv"
    one, two = (place.members[0], place.members[-1])[:: 1 if number % 2 else -1]

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        names = ("the call", "the next call") if twice else ("the call",)
        for at, name in enumerate(names):
            tensor = sketch.tensor(f"letter{at}", "full(3, rank)")
            post(
                sketch,
                name,
                how,
                rank=one,
                peer=two,
                tensor=tensor,
                sends=sends,
                tag=at,
                wait=False,
            )
        for at in range(len(names)):
            answer = "recv" if sends else "send"
            post(
                sketch,
                f"answer {at}",
                answer,
                rank=two,
                peer=one,
                tensor=f"letter{at}",
                sends=not sends,
                tag=at,
            )
        handles = [name.replace(" ", "_") for name in (names[1:] if wrong else names)]
        if handles:
            sketch.step("the wait", ranks=one, wait=handles)
        return sketch

    return twins(
        build,
        name=f"{how} that rank {one} does not wait for in a {place.name}"
        + (", the first of two" if twice else ""),
        family="missing wait",
        expected=("missing_wait",),
        first="the call",
        outcomes=COMPLETES,
    )


def _overwritten(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """A second operation under the same handle: the wait is for the second alone."""

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        call(sketch, kind, "the call", number=0, handle="work")
        second = "work" if wrong else "next"
        call(sketch, kind, "the next call", number=1, handle=second)
        sketch.step("the wait", wait="work" if wrong else ["work", "next"])
        return sketch

    return twins(
        build,
        name=f"{kind.name} whose handle is used again in a {place.name}",
        family="missing wait",
        expected=("missing_wait",),
        first="the call",
        outcomes=COMPLETES,
    )
