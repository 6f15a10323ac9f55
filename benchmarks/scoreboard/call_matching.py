"""Call matching: other calls than the others', another order, a call left out."""

from __future__ import annotations

from itertools import permutations, product
from typing import TYPE_CHECKING

from benchmarks.scoreboard.collectives import KINDS, MEETING, REDUCE, Kind, Spec, call
from benchmarks.scoreboard.program import (
    ANYTHING,
    COMPLETES,
    DEADLOCK,
    FOUR,
    PAIRS,
    PART,
    PLACES,
    SPARSE,
    TWO,
    Draft,
    Place,
    Program,
    Writer,
    twins,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FAMILY = "call matching"


def programs() -> Iterator[Program]:
    """Yield calls that meet others, and calls that one member leaves out."""
    for number, (one, two) in enumerate(permutations(KINDS, 2)):
        place = PLACES[number % len(PLACES)]
        make = _swapped if number % 2 else _instead
        yield from make(number, place, one, two)
    for number, (kind, place) in enumerate(product(KINDS, PLACES)):
        for at in sorted({0, place.size - 1}):
            later = number % 2 == 1 and not kind.objects
            yield from _left_out(number, place, kind, at, later=later)
    for number, (kind, place) in enumerate(product(KINDS, (TWO, SPARSE, PAIRS))):
        yield from _a_round_less(number, place, kind)
    for number, (kind, place) in enumerate(product(KINDS, (TWO, PART))):
        if kind in MEETING:
            yield from _against_message(number, place, kind)


def conditional() -> Iterator[Program]:
    """Yield calls that one member leaves out for what it holds, a return, or a shorter loop."""
    for number, (kind, place) in enumerate(product(KINDS, (TWO, FOUR, SPARSE))):
        yield from _on_data(number, place, kind)
        yield from _early_return(number, place, kind)
    for number, (kind, place) in enumerate(product(KINDS, (TWO, SPARSE))):
        if kind is not REDUCE:  # the next round would read what it leaves undefined elsewhere
            yield from _uneven_loop(number, place, kind)


# ---------------------------------------------------------------------------- other calls


def _mismatch(write: Writer, place: Place, number: int, name: str, first: str) -> Iterator[Program]:
    return twins(
        write,
        place,
        number,
        name=name,
        family=FAMILY,
        expected=("call_mismatch",),
        first=first,
        outcomes=ANYTHING,
    )


def _calls(
    draft: Draft, kinds: tuple[Kind, ...], *, ranks: list[int], who: str, later: bool
) -> None:
    """Let some ranks make these calls, one after the other."""
    for number, kind in enumerate(kinds):
        handle = f"work{number}" if later and not kind.objects else None
        name = f"{kind.name} of {who}"
        # the tensors are those of the kind
        call(draft, kind, name, number=KINDS.index(kind), ranks=ranks, handle=handle)
        if handle:
            draft.step(f"{name}, waited", ranks=ranks, wait=handle)


def _instead(number: int, place: Place, one: Kind, two: Kind) -> Iterator[Program]:
    """One member makes another call; the twin makes one after the other."""
    odd = place.members[number // 2 % place.size]
    later = number // 2 % 2 == 1

    def write(draft: Draft, *, wrong: bool) -> None:
        first = (one,) if wrong else (one, two)
        _calls(draft, first, ranks=place.others(odd), who="most", later=later)
        _calls(draft, (two,) if wrong else first, ranks=[odd], who="one", later=later)

    name = f"{one.name} meets {two.name} of rank {odd} in a {place.name}"
    return _mismatch(write, place, number, name, first=f"{one.name} of most")


def _swapped(number: int, place: Place, one: Kind, two: Kind) -> Iterator[Program]:
    """One member makes the same two calls in the other order."""
    odd = place.members[number // 2 % place.size]
    later = number % 4 == 1

    def write(draft: Draft, *, wrong: bool) -> None:
        order = (two, one) if wrong else (one, two)
        _calls(draft, order, ranks=[odd], who="one", later=later)
        _calls(draft, (one, two), ranks=place.others(odd), who="most", later=later)

    name = f"{one.name} and {two.name}, the other way round on rank {odd}, in a {place.name}"
    return _mismatch(write, place, number, name, first=f"{two.name} of one")


def _against_message(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """One member receives before the collective what another sends only after it."""
    first, last = place.ends

    def write(draft: Draft, *, wrong: bool) -> None:
        draft.tensor("letter")
        if wrong:
            draft.receive("the receive", "recv", last, first)
        call(draft, kind, "the call", ranks=list(place.ranks))
        draft.send("the send", "send", first, last)
        if not wrong:
            draft.receive("the receive", "recv", last, first)

    return twins(
        write,
        place,
        number,
        name=f"a receive before {kind.name}, its send after it, in a {place.name}",
        family=FAMILY,
        expected=("circular_wait",),
        first="the receive",
        outcomes=DEADLOCK,
    )


# ---------------------------------------------------------------------------- a call left out


def _missing(
    write: Writer, place: Place, number: int, name: str, first: str, outcomes: frozenset[str]
) -> Iterator[Program]:
    return twins(
        write,
        place,
        number,
        name=name,
        family=FAMILY,
        expected=("missing_participant",),
        first=first,
        outcomes=outcomes,
    )


def _without(kind: Kind, at: int) -> frozenset[str]:
    """Return the outcome of a call with root 0 that member `at` leaves out.

    A rank that needs the absent one is stuck for sure: all ranks, the leaves of an absent source,
    the root that misses a leaf. The others need no other rank (MPI 4.1, 6.4 to 6.9).
    """
    stuck = kind in MEETING or (at == 0) == (kind.role == "src")
    return DEADLOCK if stuck else COMPLETES


def _left_out(number: int, place: Place, kind: Kind, at: int, *, later: bool) -> Iterator[Program]:
    """One member does not take part."""
    odd = place.members[at]

    def write(draft: Draft, *, wrong: bool) -> None:
        ranks = place.others(odd) if wrong else list(place.ranks)
        call(draft, kind, "the call", ranks=ranks, handle="work" if later else None)
        if later:
            draft.step("the wait", ranks=ranks, wait="work")
        draft.step("afterwards", compute={"done": "1.0 * rank"})

    name = f"{kind.name} without rank {odd} in a {place.name}{', async' if later else ''}"
    return _missing(write, place, number, name, "the call", _without(kind, at))


def _a_round_less(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """One member takes a round less: the last round is the one that it misses."""
    at = number % place.size
    odd = place.members[at]

    def write(draft: Draft, *, wrong: bool) -> None:
        for turn in range(3):
            ranks = place.others(odd) if wrong and turn == 2 else list(place.ranks)
            call(draft, kind, f"round {turn}", number=turn, ranks=ranks, spec=Spec(rows=2))

    name = f"a round of {kind.name} less on rank {odd} of a {place.name}"
    return _missing(write, place, 0, name, "round 2", _without(kind, at))


def _on_data(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """What a rank holds decides whether it takes the call; one member holds something else."""
    at = number % place.size
    odd = place.members[at]

    def write(draft: Draft, *, wrong: bool) -> None:
        draft.tensor("loss", value={odd: [0], "else": [1]} if wrong else [1])
        call(draft, kind, "the call")
        held = "loss[0] > 0"
        draft.steps[-1]["ranks"] = held if place.group is None else f"rank != 1 and {held}"

    name = f"{kind.name} if the loss allows it, not on rank {odd} of a {place.name}"
    return _missing(write, place, number, name, "the call", _without(kind, at))


def _early_return(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """One member returns after the first of three calls: the second is where it is missed."""
    at = number % place.size
    odd = place.members[at]

    def write(draft: Draft, *, wrong: bool) -> None:
        for turn in range(3):
            ranks = place.others(odd) if wrong and turn else list(place.ranks)
            call(draft, kind, f"call {turn}", number=turn, ranks=ranks, spec=Spec(rows=1))

    name = f"rank {odd} returns after the first {kind.name} in a {place.name}"
    return _missing(write, place, number, name, "call 1", _without(kind, at))


def _uneven_loop(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """A loop whose number of rounds depends on the rank: one has fewer batches than the others."""
    at = number % place.size
    odd = place.members[at]

    def write(draft: Draft, *, wrong: bool) -> None:
        call(draft, kind, "the call", spec=Spec(rows=1))
        body = draft.steps.pop()
        rounds = f"3 - (rank == {odd})" if wrong else "3"
        draft.steps.append({"for": {"round": f"range({rounds})"}, "steps": [body]})

    name = f"a loop over {kind.name}, a round less on rank {odd} of a {place.name}"
    return _missing(write, place, number, name, "the call", _without(kind, at))
