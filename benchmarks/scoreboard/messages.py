"""Messages that do not meet, lopsided batches, and receives from anyone."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from benchmarks.scoreboard.program import (
    ANYTHING,
    COMPLETES,
    DEADLOCK,
    FOUR,
    PLACES,
    RECEIVES,
    SENDS,
    SPARSE,
    THREE,
    Draft,
    Place,
    Program,
    Writer,
    twins,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

#: those of three ranks or more
LARGER = (THREE, FOUR, SPARSE)
TAGS = ((0, 1), (7, 3), (1, 0))
SIDES = tuple(product(SENDS, RECEIVES))


def programs() -> Iterator[Program]:
    """Yield messages with wrong tags, sizes and dtypes, and those of which one side is absent."""
    for number, ((sending, receiving), place) in enumerate(product(SIDES, PLACES)):
        yield from _tags(number, place, sending, receiving)
        yield from _misfit(number, place, sending, receiving)
    for number, (how, place) in enumerate(product((*SENDS, *RECEIVES[:2]), PLACES)):
        yield from _alone(number, place, how)
    for number, ((sending, receiving), place) in enumerate(product(SIDES, LARGER)):
        yield from _astray(number, place, sending, receiving)


def _tags(number: int, place: Place, sending: str, receiving: str) -> Iterator[Program]:
    """Sent with one tag, received with another."""
    one, two = TAGS[number % len(TAGS)]
    source, target = place.ends if number % 2 else place.ends[::-1]
    sent_first = number % 4 in {0, 1}

    def write(draft: Draft, *, wrong: bool) -> None:
        draft.tensor("letter")
        there = two if wrong else one
        if sent_first:
            draft.send("the call", sending, source, target, tag=one)
            draft.receive("it", receiving, target, source, tag=there)
        else:
            draft.receive("the call", receiving, target, source, tag=there)
            draft.send("it", sending, source, target, tag=one)

    return twins(
        write,
        place,
        number,
        name=f"{sending} with tag {one}, {receiving} with {two} in a {place.name}",
        family="tag",
        expected=("tag_mismatch",),
        first="the call",
        outcomes=DEADLOCK,
    )


def _misfit(number: int, place: Place, sending: str, receiving: str) -> Iterator[Program]:
    """The receiver's buffer has another dtype, or another size, than the message."""
    source, target = place.ends
    by_type = number % 2 == 0

    def write(draft: Draft, *, wrong: bool) -> None:
        rows = 3 + (number % 4 - 2 if wrong and not by_type else 0)
        buffer = {"dtype": "int32" if wrong and by_type else "float32", "value": f"zeros({rows})"}
        draft.tensor("letter", value={target: buffer, "else": "full(3, rank + 1)"})
        draft.send("the call", sending, source, target)
        draft.receive("other", receiving, target, source)

    return twins(
        write,
        place,
        number,
        name=f"{sending} into {receiving} of another {'dtype' if by_type else 'size'}"
        f" in a {place.name}",
        family="datatype" if by_type else "shape",
        expected=("dtype_mismatch" if by_type else "shape_mismatch",),
        first="the call",
        outcomes=ANYTHING,
    )


def _unmatched(
    write: Writer, place: Place, number: int, name: str, *expected: str, first: str = "the call"
) -> Iterator[Program]:
    return twins(
        write,
        place,
        number,
        name=name,
        family="call matching",
        expected=expected,
        first=first,
        outcomes=DEADLOCK,
    )


def _alone(number: int, place: Place, how: str) -> Iterator[Program]:
    """One side of a message without the other."""
    sends = how in SENDS
    rank, peer = place.ends if number % 2 else place.ends[::-1]

    def write(draft: Draft, *, wrong: bool) -> None:
        draft.tensor("letter")
        here, there = draft.sides(sends=sends)
        here("the call", how, rank, peer)
        if not wrong:
            there("it", "recv" if sends else "send", peer, rank)

    name = f"{how} of rank {rank} alone in a {place.name}"
    expected = "unmatched_send" if sends else "unmatched_recv"
    return _unmatched(write, place, number, name, expected)


def _astray(number: int, place: Place, sending: str, receiving: str) -> Iterator[Program]:
    """A message goes to another rank than the one that waits for it."""
    source, target, another = place.members[:3]

    def write(draft: Draft, *, wrong: bool) -> None:
        draft.tensor("letter")
        draft.send("the call", sending, source, another if wrong else target)
        draft.receive("it", receiving, target, source)

    name = f"{sending} to the wrong rank, {receiving} on the right one in a {place.name}"
    return _unmatched(write, place, number, name, "unmatched_send", "unmatched_recv")


# ---------------------------------------------------------------------------- batches


def batches() -> Iterator[Program]:
    """Yield exchanges between neighbours in which one batch does not mirror the others."""
    for number, place in enumerate(PLACES):
        for absent in ("isend", "irecv"):
            yield from _lopsided(number, place, absent)
    for number, place in enumerate(LARGER):
        yield from _wrong_neighbour(number, place)


def _exchange(draft: Draft, first: list[tuple[str, int]] | None = None) -> None:
    """Let all send to the next and receive from the one before, in one batch each.

    `first`: what the first member's batch has instead.
    """
    place = draft.place
    draft.tensor("mine")
    draft.tensor("theirs", value="zeros(3)")
    tensors = {"isend": "mine", "irecv": "theirs"}
    for at, rank in enumerate(place.members):
        items = [("isend", place.member(at + 1)), ("irecv", place.member(at - 1))]
        batch = [
            {"op": word, "tensor": tensors[word], "peer": peer, **place.on_group}
            for word, peer in (items if at or first is None else first)
        ]
        draft.step(f"batch {at}", ranks=rank, handle="batch", batch_isend_irecv=batch)
    draft.step("the wait", ranks=list(place.members), wait="batch")


def _lopsided(number: int, place: Place, absent: str) -> Iterator[Program]:
    """The first member leaves one side of the exchange out of its batch."""
    sends = absent == "isend"
    kept = ("irecv", place.member(-1)) if sends else ("isend", place.member(1))
    first = f"batch {1 if sends else place.size - 1}"

    def write(draft: Draft, *, wrong: bool) -> None:
        _exchange(draft, [kept] if wrong else None)

    name = f"a batch without its {absent} in a {place.name}"
    expected = "unmatched_recv" if sends else "unmatched_send"
    return _unmatched(write, place, number, name, expected, first=first)


def _wrong_neighbour(number: int, place: Place) -> Iterator[Program]:
    """The first member sends to the one before instead of the next."""
    behind = place.member(-1)

    def write(draft: Draft, *, wrong: bool) -> None:
        _exchange(draft, [("isend", behind), ("irecv", behind)] if wrong else None)

    name = f"a batch to the wrong neighbour in a {place.name}"
    expected = "unmatched_send", "unmatched_recv"
    return _unmatched(write, place, number, name, *expected, first="batch 0")


# ---------------------------------------------------------------------------- from anyone

#: what the twin does instead
CURES = ("named sources", "equal messages", "a tag for each", "one after the other")
#: (what sends, what receives): blocking, and started and waited for
SIDES_FROM_ANYONE = tuple(product(SENDS[:2], RECEIVES[:2]))


def from_anyone() -> Iterator[Program]:
    """Yield races of messages, and programs in which only one can come."""
    for number, (side, cure, place) in enumerate(product(SIDES_FROM_ANYONE, CURES, LARGER)):
        yield from _race(number, place, side, cure)
    for number, (side, place) in enumerate(product(SIDES_FROM_ANYONE, LARGER)):
        for named in place.members[1:]:
            yield from _then_named(number, place, side, named)


def _letters(draft: Draft, value: str) -> None:
    draft.tensor("letter", value=value)
    draft.tensor(*(f"taken{at}" for at in range(1, draft.place.size)), value="zeros(3)")


def _race(number: int, place: Place, side: tuple[str, str], cure: str) -> Iterator[Program]:
    """The first member takes from anyone what all others send to it, and keeps a copy of each.

    Without the copies it would be no race: what nothing reads is scratch.
    """
    sending, receiving = side
    target, *sources = place.members

    def write(draft: Draft, *, wrong: bool) -> None:
        cured = "" if wrong else cure
        tags = {at: at if cured == "a tag for each" else 0 for at in range(1, place.size)}
        _letters(draft, "full(3, 7)" if cured == "equal messages" else "full(3, rank)")
        for at, source in enumerate(sources, start=1):
            draft.send(f"send {at}", sending, source, target, tag=tags[at])
            if cured == "one after the other":
                draft.receive(f"take {at}", receiving, target, None, f"taken{at}")
                draft.step(f"after {at}", barrier=place.on_group)
        if cured != "one after the other":
            for at, source in enumerate(sources, start=1):
                of = source if cured == "named sources" else None
                draft.receive(f"take {at}", receiving, target, of, f"taken{at}", tag=tags[at])
        kept = {f"kept{at}": f"taken{at}" for at in range(1, place.size)}
        draft.step("keep", ranks=target, compute=kept)

    return twins(
        write,
        place,
        number,
        name=f"{sending}s of {len(sources)} ranks into {receiving}s from anyone (not {cure})"
        f" in a {place.name}",
        family="message race",
        expected=("message_race",),
        first="take 1",
        outcomes=COMPLETES,
    )


def _then_named(number: int, place: Place, side: tuple[str, str], named: int) -> Iterator[Program]:
    """A receive from anyone may take the message that a later, named one wants.

    In the twin the named ones come first, so that one message is left for anyone.
    """
    sending, receiving = side
    target, *sources = place.members

    def write(draft: Draft, *, wrong: bool) -> None:
        _letters(draft, "full(3, 7)")
        for at, source in enumerate(sources, start=1):
            draft.send(f"send {at}", sending, source, target)
        wanted = [named, *[None] * (len(sources) - 1)]
        for at, peer in enumerate(wanted[::-1] if wrong else wanted, start=1):
            draft.receive(f"take {at}", receiving, target, peer, f"taken{at}")

    return twins(
        write,
        place,
        number,
        name=f"{sending}s into {receiving}s from anyone, then from {named}, in a {place.name}",
        family="message race",
        expected=("message_race",),
        allowed=("unmatched_send", "unmatched_recv", "circular_wait"),
        first="take 1",
        outcomes=ANYTHING,
    )
