"""Tensors: touched while work uses them, shared by two operations, undefined; and missing waits."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from benchmarks.scoreboard.collectives import (
    BARRIER,
    EVERY,
    LEAF,
    REDUCE,
    ROOT,
    TENSOR_KINDS,
    Kind,
    Spec,
    call,
)
from benchmarks.scoreboard.program import (
    COMPLETES,
    PLACES,
    TWO,
    Draft,
    Place,
    Program,
    Writer,
    twins,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def _race(
    write: Writer, place: Place, number: int, name: str, *, family: str, first: str
) -> Iterator[Program]:
    return twins(
        write,
        place,
        number,
        name=name,
        family=family,
        expected=("buffer_race",),
        first=first,
        outcomes=COMPLETES,
    )


# ---------------------------------------------------------------------------- touched while in use

TOUCHED = "input hazard"
MESSAGES = ("isend", "irecv", "batch isend", "batch irecv")
#: how a rank touches a tensor with a message of its own, and how its peer answers
BY_MESSAGE = {"send": ("isend", "irecv"), "receive": ("irecv", "isend")}


def touched() -> Iterator[Program]:
    """Yield tensors that are read or overwritten while an asynchronous operation uses them."""
    for number, (kind, letter, place) in enumerate(product(TENSOR_KINDS, "xy", PLACES)):
        for how, used in (("write", kind.reads), ("read", kind.writes), ("write", kind.writes)):
            if letter in used:
                yield from _touched_collective(number, place, kind, letter, used[letter], how)
        if letter in kind.reads and letter not in kind.writes:
            yield _reader(number, place, kind, letter)
    for number, (message, place) in enumerate(product(MESSAGES, PLACES)):
        for how in ("write", "read", *BY_MESSAGE):
            yield from _touched_message(number, place, message, how)


def _touch(draft: Draft, how: str, tensor: str, rank: int, *, listed: bool = False) -> None:
    """Let a rank read or overwrite a tensor (of a list: the first one)."""
    if how == "read":
        changed = {"seen": f"{tensor}[0] * 2" if listed else f"{tensor} * 2"}
    else:
        changed = {tensor: f"[0 * each for each in {tensor}]" if listed else f"0 * {tensor}"}
    draft.step("the touch", ranks=rank, compute=changed)


def _touched_collective(
    number: int, place: Place, kind: Kind, letter: str, who: str, how: str
) -> Iterator[Program]:
    """A member touches what its asynchronous collective uses; in the twin after the wait."""
    at = {ROOT: 0, LEAF: place.size - 1, EVERY: number % place.size}[who]
    if kind is REDUCE:
        at = 0  # elsewhere it leaves the tensor undefined, so that no twin could read it
    rank = place.members[at]

    def write(draft: Draft, *, wrong: bool) -> None:
        names = call(draft, kind, "the call", handle="work")
        if wrong:
            _touch(draft, how, names[letter], rank, listed=kind.lists(letter))
        draft.step("the wait", wait="work")
        if not wrong:
            _touch(draft, how, names[letter], rank, listed=kind.lists(letter))

    role = "input" if letter in kind.reads else "output"
    name = f"{how} the {role} of a running {kind.name} on rank {rank} of a {place.name}"
    return _race(write, place, number, name, family=TOUCHED, first="the touch")


def _reader(number: int, place: Place, kind: Kind, letter: str) -> Program:
    """What a running collective only reads, others may read as well."""
    rank = place.members[0 if kind.reads[letter] == ROOT else number % place.size]
    draft = Draft(place, number)
    names = call(draft, kind, "the call", handle="work")
    _touch(draft, "read", names[letter], rank, listed=kind.lists(letter))
    draft.step("the wait", wait="work")
    name = f"read the input of a running {kind.name} on rank {rank} of a {place.name}"
    return Program(name=f"{name}, right", family=TOUCHED, document=draft.document())


def _touched_message(number: int, place: Place, message: str, how: str) -> Iterator[Program]:
    """A rank touches what its message uses; where it may read that, the reader is the twin."""
    one, two = place.ends
    sends = "isend" in message
    start = message.split(maxsplit=1)[0]

    def write(draft: Draft, *, wrong: bool) -> None:
        draft.tensor("mine", "theirs", "more")
        used = "mine" if sends else "theirs"
        here, there = draft.sides(sends=sends)
        here("start", start, one, two, used, wait=False)
        if not wrong and not sends:
            draft.step("the wait", ranks=one, wait="start")
        touched = used if wrong or not sends else "more"
        second, its_answer = draft.sides(sends=how == "send")
        if how in BY_MESSAGE:
            second("the touch", BY_MESSAGE[how][0], one, two, touched, tag=5, wait=False)
        else:
            _touch(draft, how, touched, one)
        there("answer", "recv" if sends else "send", two, one, "theirs")
        if how in BY_MESSAGE:
            its_answer("second", BY_MESSAGE[how][1], two, one, "more", tag=5)
        if wrong or sends:
            draft.step("the wait", ranks=one, wait="start")
        if how in BY_MESSAGE:
            draft.step("the other wait", ranks=one, wait="the_touch")

    name = f"{how} what a running {message} uses in a {place.name}"
    if sends and how in {"read", "send"}:  # harmless
        document = written(write, place, number, wrong=True)
        return iter((Program(name=f"{name}, right", family=TOUCHED, document=document),))
    return _race(write, place, number, name, family=TOUCHED, first="the touch")


# ---------------------------------------------------------------------------- two at once

TWICE = "local concurrency"
#: collectives that store into their `x`
IN_PLACE = tuple(kind for kind in TENSOR_KINDS if "x" in kind.writes and kind is not REDUCE)
#: what two messages of one rank on one tensor are: (of the first, of the second)
TWO_AT_ONCE = (
    ("irecv", "irecv"),
    ("isend", "irecv"),
    ("irecv", "isend"),
    ("batch", "irecv"),
)
BETWEEN = "a wait between"
#: what the twin does instead: the tensors of its two messages, and of those of the wrong program
CURES = {
    "tensors of their own": (("both", "own"), ("both", "both")),
    BETWEEN: (("both", "both"), ("both", "both")),
    "slices": (("both[0:2]", "both[2:4]"), ("both[0:3]", "both[1:4]")),
}
ROWS = {"both": 4, "own": 4, "both[0:2]": 2, "both[2:4]": 2, "both[0:3]": 3, "both[1:4]": 3}


def shared() -> Iterator[Program]:
    """Yield two operations at once on one tensor, which one of them fills."""
    for number, (one, two) in enumerate(product(IN_PLACE, TENSOR_KINDS)):
        # the input of all_to_all_single is longer than what the others store into
        if two.name != "all_to_all_single" and "x" in {*two.reads, *two.writes}:
            yield from _two_collectives(number, PLACES[number % len(PLACES)], one, two)
            yield from _two_collectives(number + 1, PLACES[(number + 3) % len(PLACES)], one, two)
    for number, (pair, place) in enumerate(product(TWO_AT_ONCE, PLACES)):
        for cure in CURES:
            yield from _two_messages(number, place, pair, cure)
    for number, (kind, place) in enumerate(product(IN_PLACE, PLACES)):
        yield from _message_beside(number, place, kind)


def _two_collectives(number: int, place: Place, one: Kind, two: Kind) -> Iterator[Program]:
    """A second collective on the tensor of a running one; the twin has two, or waits between."""

    def write(draft: Draft, *, wrong: bool) -> None:
        x = call(draft, one, "the call", handle="work")["x"]
        waits = not wrong and number % 2 == 0
        if waits:
            draft.step("the wait between", wait="work")
        held = draft.tensors[x]
        same = x if wrong or waits else None
        call(draft, two, "the next call", number=1, handle="next", x=same)
        draft.tensors[x] = held
        draft.step("the wait", wait=["next"] if waits else ["work", "next"])

    name = f"{one.name} and {two.name} at once on one tensor in a {place.name}"
    return _race(write, place, number, name, family=TWICE, first="the next call")


def _two_messages(number: int, place: Place, pair: tuple[str, str], cure: str) -> Iterator[Program]:
    """Two messages at once on one tensor, which one of them fills."""
    one, two = place.ends
    calls = ("the call", "the next call")

    def write(draft: Draft, *, wrong: bool) -> None:
        draft.tensor("both", "own", "far", value="full(4, rank)")
        between = cure == BETWEEN and not wrong
        tensors = CURES[cure][1 if wrong else 0]

        def answer(at: int) -> None:
            rows = ROWS[tensors[at]]
            far = f"far[0:{rows}]" if rows < 4 else "far"
            sends = pair[at] == "isend"
            _, there = draft.sides(sends=sends)
            there(f"answer {at}", "irecv" if sends else "isend", two, one, far, tag=at + 1)

        for at, (how, tensor) in enumerate(zip(pair, tensors, strict=True)):
            here, _ = draft.sides(sends=how == "isend")
            here(calls[at], how, one, two, tensor, tag=at + 1, wait=False)
            if between and at == 0:
                answer(0)
                draft.step("the wait between", ranks=one, wait="the_call")
        for at in (1,) if between else (0, 1):
            answer(at)
        last = ["the_next_call"] if between else ["the_call", "the_next_call"]
        draft.step("the wait", ranks=one, wait=last)

    name = f"{pair[0]} and {pair[1]} at once on one tensor (not {cure}) in a {place.name}"
    return _race(write, place, number, name, family=TWICE, first="the next call")


def _message_beside(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """A message out of the tensor that a running collective stores into."""
    two, one = place.ends

    def write(draft: Draft, *, wrong: bool) -> None:
        draft.tensor("mine", "far", value="full(4, rank)")
        names = call(draft, kind, "the call", handle="work")
        sent = names["x"] if wrong else "mine"
        draft.send("the next call", "isend", one, two, sent, wait=False)
        draft.receive("it", "irecv", two, one, "far")
        draft.step("the wait", wait=["work", "the_next_call"])

    name = f"a message out of what a running {kind.name} fills in a {place.name}"
    return _race(write, place, number, name, family=TWICE, first="the next call")


# ---------------------------------------------------------------------------- missing waits


def unwaited() -> Iterator[Program]:
    """Yield work that is started, and that no rank waits for."""
    for number, (kind, place) in enumerate(product((*TENSOR_KINDS, BARRIER), PLACES)):
        for who in ("nobody", "not one"):
            yield from _collective(number, place, kind, who)
    for number, (how, place) in enumerate(product(("isend", "irecv", "batch"), PLACES)):
        for twice in (False, True):
            yield from _message(number, place, how, twice=twice)
    for number, kind in enumerate((*TENSOR_KINDS, BARRIER)):
        yield from _overwritten(number, TWO, kind)


def _lost(write: Writer, place: Place, number: int, name: str) -> Iterator[Program]:
    return twins(
        write,
        place,
        number,
        name=name,
        family="missing wait",
        expected=("missing_wait",),
        first="the call",
        outcomes=COMPLETES,
    )


def _collective(number: int, place: Place, kind: Kind, who: str) -> Iterator[Program]:
    """No rank waits for a collective, or one member does not."""
    odd = place.members[number % place.size]

    def write(draft: Draft, *, wrong: bool) -> None:
        call(draft, kind, "the call", handle="work")
        draft.step("meanwhile", compute={"done": "1.0 * rank"})
        if not wrong:
            draft.step("the wait", wait="work")
        elif who == "not one":
            draft.step("the wait", ranks=place.others(odd), wait="work")

    return _lost(write, place, number, f"{kind.name} that {who} waits for in a {place.name}")


def _message(number: int, place: Place, how: str, *, twice: bool) -> Iterator[Program]:
    """A message whose own side is not waited for; `twice`: only the first of two."""
    one, two = place.ends if number % 2 else place.ends[::-1]
    names = ("the call", "the next call") if twice else ("the call",)
    sends = how != "irecv"

    def write(draft: Draft, *, wrong: bool) -> None:
        here, there = draft.sides(sends=sends)
        for at, name in enumerate(names):
            draft.tensor(f"letter{at}")
            here(name, how, one, two, f"letter{at}", tag=at, wait=False)
        for at in range(len(names)):
            answer = "recv" if sends else "send"
            there(f"answer {at}", answer, two, one, f"letter{at}", tag=at)
        handles = [name.replace(" ", "_") for name in (names[1:] if wrong else names)]
        if handles:
            draft.step("the wait", ranks=one, wait=handles)

    name = f"{how} that rank {one} does not wait for in a {place.name}"
    return _lost(write, place, number, name + (", the first of two" if twice else ""))


def _overwritten(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """A second operation under the same handle: the wait is for the second alone."""

    def write(draft: Draft, *, wrong: bool) -> None:
        call(draft, kind, "the call", handle="work")
        call(draft, kind, "the next call", number=1, handle="work" if wrong else "next")
        draft.step("the wait", wait="work" if wrong else ["work", "next"])

    return _lost(write, place, number, f"{kind.name} whose handle is used again in a {place.name}")


# ---------------------------------------------------------------------------- undefined values

#: collectives to which every member contributes its `x`, of a reduction's own shape
READERS = tuple(
    kind
    for kind in TENSOR_KINDS
    if kind.name in {"all_reduce", "reduce", "all_gather", "all_gather_single", "gather"}
)


def undefined() -> Iterator[Program]:
    """Yield collectives over what `reduce` leaves on other ranks than its destination."""
    for number, (kind, place) in enumerate(product(READERS, PLACES)):
        yield from _undefined_read(number, place, kind)


def _undefined_read(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    rows = Spec(rows=place.size)

    def write(draft: Draft, *, wrong: bool) -> None:
        call(draft, REDUCE, "the reduction", spec=rows)
        held = draft.tensors["x0"]
        if not wrong:
            draft.step("afresh", compute={"x0": f"full({place.size}, rank)"})
        call(draft, kind, "the call", number=1, spec=rows, x="x0")
        draft.tensors["x0"] = held

    return twins(
        write,
        place,
        number,
        name=f"{kind.name} of what a reduce leaves elsewhere in a {place.name}",
        family="undefined value",
        expected=("undefined_read",),
        first="the call",
        outcomes=COMPLETES,
    )
