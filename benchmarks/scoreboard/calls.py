"""Call matching: other calls than the others', another order, a call left out."""

from __future__ import annotations

from itertools import permutations, product
from typing import TYPE_CHECKING

from benchmarks.scoreboard.calling import call
from benchmarks.scoreboard.kinds import KINDS, Kind, Spec
from benchmarks.scoreboard.sketch import (
    ANYTHING,
    COMPLETES,
    DEADLOCK,
    PAIRS,
    PART,
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


def programs() -> Iterator[Program]:
    """Yield the class."""
    for number, (one, two) in enumerate(permutations(KINDS, 2)):
        place = PLACES[number % len(PLACES)]
        make = _swapped if number % 2 else _instead
        yield from make(number, place, one, two)
    for number, (kind, place) in enumerate(product(KINDS, PLACES)):
        for at in sorted({0, place.size - 1}):
            later = number % 2 == 1 and not kind.objects
            yield from _left_out(number, place, kind, at, later=later)
    for number, (kind, place) in enumerate(product(KINDS, (TWO, SPARSE, PAIRS))):
        yield from _fewer_rounds(number, place, kind)
    for number, (kind, place) in enumerate(product(KINDS, (TWO, PART))):
        if kind.role == "all":
            yield from _against_message(number, place, kind)


def _calls(
    sketch: Sketch, kinds: tuple[Kind, ...], *, ranks: list[int], who: str, later: bool
) -> None:
    """Let some ranks make these calls, one after the other."""
    for number, kind in enumerate(kinds):
        handle = f"work{number}" if later and not kind.objects else None
        number = KINDS.index(kind)  # noqa: PLW2901 -- the tensors are those of the kind
        call(sketch, kind, f"{kind.name} of {who}", number=number, ranks=ranks, handle=handle)
        if handle:
            sketch.step(f"{kind.name} of {who}, waited", ranks=ranks, wait=handle)


def _instead(number: int, place: Place, one: Kind, two: Kind) -> Iterator[Program]:
    """One member makes another call; the twin makes one after the other."""
    odd = place.members[number // 2 % place.size]
    later = number // 2 % 2 == 1

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        first = (one,) if wrong else (one, two)
        _calls(sketch, first, ranks=place.others(odd), who="most", later=later)
        _calls(sketch, (two,) if wrong else first, ranks=[odd], who="one", later=later)
        return sketch

    return twins(
        build,
        name=f"{one.name} meets {two.name} of rank {odd} in a {place.name}",
        family=FAMILY,
        expected=("call_mismatch",),
        first=f"{one.name} of most",
        outcomes=ANYTHING,
    )


def _swapped(number: int, place: Place, one: Kind, two: Kind) -> Iterator[Program]:
    """One member makes the same two calls in the other order."""
    odd = place.members[number // 2 % place.size]
    later = number % 4 == 1

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        order = (two, one) if wrong else (one, two)
        _calls(sketch, order, ranks=[odd], who="one", later=later)
        _calls(sketch, (one, two), ranks=place.others(odd), who="most", later=later)
        return sketch

    return twins(
        build,
        name=f"{one.name} and {two.name}, the other way round on rank {odd}, in a {place.name}",
        family=FAMILY,
        expected=("call_mismatch",),
        first=f"{two.name} of one",
        outcomes=ANYTHING,
    )


def without(kind: Kind, at: int, root: int = 0) -> frozenset[str]:
    """Return the outcome of a call that member `at` leaves out.

    Who needs the absent one is stuck for sure: everybody, the leaves of an absent source, the root
    that misses a leaf. The others need no other rank (MPI 4.1, 6.4 to 6.9).
    """
    stuck = kind.role == "all" or (at == root) == (kind.role == "src")
    return DEADLOCK if stuck else COMPLETES


def _left_out(number: int, place: Place, kind: Kind, at: int, *, later: bool) -> Iterator[Program]:
    """One member does not take part."""
    odd = place.members[at]

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        ranks = place.others(odd) if wrong else list(place.ranks)
        call(sketch, kind, "the call", ranks=ranks, handle="work" if later else None)
        if later:
            sketch.step("the wait", ranks=ranks, wait="work")
        sketch.step("afterwards", compute={"done": "1.0 * rank"})
        return sketch

    return twins(
        build,
        name=f"{kind.name} without rank {odd} in a {place.name}{', async' if later else ''}",
        family=FAMILY,
        expected=("missing_participant",),
        first="the call",
        outcomes=without(kind, at),
    )


def _fewer_rounds(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """One member takes a round less: the last round is the one that it misses."""
    at = number % place.size
    odd = place.members[at]

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        ranks = list(place.ranks)
        for round_ in range(3):
            last = place.others(odd) if wrong and round_ == 2 else ranks
            call(sketch, kind, f"round {round_}", number=round_, ranks=last, spec=Spec(rows=2))
        return sketch

    return twins(
        build,
        name=f"a round of {kind.name} less on rank {odd} of a {place.name}",
        family=FAMILY,
        expected=("missing_participant",),
        first="round 2",
        outcomes=without(kind, at),
    )


def _against_message(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """One member receives before the collective what another sends only after it."""
    first, last = place.members[0], place.members[-1]
    where = {"group": place.group} if place.group else {}

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        sketch.tensor("letter", "full(3, rank)")

        def receive() -> None:
            action = {"tensor": "letter", "src": first, **where}
            sketch.step("the receive", ranks=last, recv=action)

        if wrong:
            receive()
        call(sketch, kind, "the call", ranks=list(place.ranks))
        sketch.step("the send", ranks=first, send={"tensor": "letter", "dst": last, **where})
        if not wrong:
            receive()
        return sketch

    return twins(
        build,
        name=f"a receive before {kind.name}, its send after it, in a {place.name}",
        family=FAMILY,
        expected=("circular_wait",),
        first="the receive",
        outcomes=DEADLOCK,
    )
