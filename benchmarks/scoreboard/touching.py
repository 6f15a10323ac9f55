"""Input hazards: a tensor is touched while an asynchronous operation still uses it."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from benchmarks.scoreboard.calling import call
from benchmarks.scoreboard.kinds import EVERY, LEAF, ROOT, TENSOR_KINDS, Kind
from benchmarks.scoreboard.letters import post
from benchmarks.scoreboard.sketch import COMPLETES, PLACES, Place, Program, Sketch, twins

if TYPE_CHECKING:
    from collections.abc import Iterator

FAMILY = "input hazard"
MESSAGES = ("isend", "irecv", "batch isend", "batch irecv")


def programs() -> Iterator[Program]:
    """Yield the class."""
    for number, (kind, letter, place) in enumerate(product(TENSOR_KINDS, "xy", PLACES)):
        for how, used in (("write", kind.reads), ("read", kind.writes), ("write", kind.writes)):
            if letter in used:
                yield from _collective(number, place, kind, letter, used[letter], how)
        if letter in kind.reads and letter not in kind.writes:
            yield _reader(number, place, kind, letter)
    for number, (message, place) in enumerate(product(MESSAGES, PLACES)):
        for how in ("write", "read", "send", "receive"):
            yield from _message(number, place, message, how)


def touch(sketch: Sketch, how: str, tensor: str, rank: int, *, listed: bool = False) -> None:
    """Let a rank read or overwrite a tensor (of a list: the first one)."""
    if how == "read":
        value = f"{tensor}[0] * 2" if listed else f"{tensor} * 2"
        sketch.step("the touch", ranks=rank, compute={"seen": value})
    else:
        value = f"[0 * each for each in {tensor}]" if listed else f"0 * {tensor}"
        sketch.step("the touch", ranks=rank, compute={tensor: value})


def _collective(
    number: int, place: Place, kind: Kind, letter: str, who: str, how: str
) -> Iterator[Program]:
    """A member touches what its asynchronous collective uses; in the twin after the wait."""
    at = {ROOT: 0, LEAF: place.size - 1, EVERY: number % place.size}[who]
    if kind.name == "reduce":
        at = 0  # elsewhere it leaves the tensor undefined, so that no twin could read it
    rank = place.members[at]

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        names = call(sketch, kind, "the call", handle="work")
        listed = kind.listed and (letter == "y" or kind.name == "all_to_all")
        if wrong:
            touch(sketch, how, names[letter], rank, listed=listed)
        sketch.step("the wait", wait="work")
        if not wrong:
            touch(sketch, how, names[letter], rank, listed=listed)
        return sketch

    role = "input" if who and letter in kind.reads else "output"
    return twins(
        build,
        name=f"{how} the {role} of a running {kind.name} on rank {rank} of a {place.name}",
        family=FAMILY,
        expected=("buffer_race",),
        first="the touch",
        outcomes=COMPLETES,
    )


def _reader(number: int, place: Place, kind: Kind, letter: str) -> Program:
    """What a running collective only reads, others may read as well."""
    at = 0 if kind.reads[letter] == ROOT else number % place.size
    sketch = Sketch(place)
    sketch.prelude(number)
    names = call(sketch, kind, "the call", handle="work")
    listed = kind.listed and letter == "y"
    touch(sketch, "read", names[letter], place.members[at], listed=listed)
    sketch.step("the wait", wait="work")
    name = f"read the input of a running {kind.name} on rank {place.members[at]} of a {place.name}"
    return Program(name=f"{name}, right", family=FAMILY, document=sketch.document())


def _message(number: int, place: Place, message: str, how: str) -> Iterator[Program]:
    """A rank touches what its message uses; where it may read that, the reader is the twin."""
    one, two = place.members[0], place.members[-1]
    sends = "isend" in message
    kind = message.split(maxsplit=1)[0]
    harmless = sends and how in {"read", "send"}

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        for name in ("mine", "theirs", "more"):
            sketch.tensor(name, "full(3, rank)")
        used = "mine" if sends else "theirs"
        post(sketch, "start", kind, rank=one, peer=two, tensor=used, sends=sends, wait=False)
        if not wrong and not sends:
            sketch.step("the wait", ranks=one, wait="start")
        _touched(sketch, one, two, used if wrong or not sends else "more", how)
        answer = "recv" if sends else "send"
        post(sketch, "answer", answer, rank=two, peer=one, tensor="theirs", sends=not sends)
        if how in {"send", "receive"}:
            word = "irecv" if how == "send" else "isend"
            post(
                sketch,
                "second",
                word,
                rank=two,
                peer=one,
                tensor="more",
                sends=word == "isend",
                tag=5,
            )
        if wrong or sends:
            sketch.step("the wait", ranks=one, wait="start")
        if how in {"send", "receive"}:
            sketch.step("the other wait", ranks=one, wait="the_touch")
        return sketch

    name = f"{how} what a running {message} uses in a {place.name}"
    if harmless:
        document = build(wrong=True).document()
        return iter((Program(name=f"{name}, right", family=FAMILY, document=document),))
    return twins(
        build,
        name=name,
        family=FAMILY,
        expected=("buffer_race",),
        first="the touch",
        outcomes=COMPLETES,
    )


def _touched(sketch: Sketch, rank: int, peer: int, tensor: str, how: str) -> None:
    if how in {"read", "write"}:
        touch(sketch, how, tensor, rank)
        return
    post(
        sketch,
        "the touch",
        "isend" if how == "send" else "irecv",
        rank=rank,
        peer=peer,
        tensor=tensor,
        sends=how == "send",
        tag=5,
        wait=False,
    )
