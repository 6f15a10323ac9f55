"""Invalid arguments: what torch refuses at the call, on the rank that makes it."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from benchmarks.scoreboard.calling import call
from benchmarks.scoreboard.kinds import KINDS, Kind, Spec
from benchmarks.scoreboard.sketch import (
    ERROR,
    FOUR,
    PART,
    PLACES,
    SPARSE,
    THREE,
    TWO,
    Builder,
    Place,
    Program,
    Sketch,
    twins,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FAMILY = "invalid argument"
LISTED = ("all_gather", "gather", "scatter", "reduce_scatter", "all_to_all")


def programs() -> Iterator[Program]:
    """Yield the class."""
    by_name = {kind.name: kind for kind in KINDS}
    rooted = [kind for kind in KINDS if kind.rooted]
    for number, (kind, place) in enumerate(product(rooted, (PART, SPARSE))):
        yield from _outside(number, place, kind)
        yield from _both_spellings(number, place, kind)
    for number, (name, place) in enumerate(product(LISTED, PLACES)):
        yield from _list_too_short(number, place, by_name[name])
    for number, (kind, place) in enumerate(
        product((by_name["gather"], by_name["scatter"]), (TWO, THREE, SPARSE))
    ):
        yield from _list_off_the_root(number, place, kind)
    for number, (name, place) in enumerate(
        product(("send", "isend", "recv", "irecv"), (TWO, THREE, PART, SPARSE))
    ):
        for wrong in ("itself", "tag", "outside"):
            yield from _message(number, place, name, wrong)
    for number, place in enumerate((TWO, THREE, FOUR, PART, SPARSE)):
        yield from _splits(number, place)


def _refused(build: Builder, name: str, allowed: tuple[str, ...] = ()) -> Iterator[Program]:
    return twins(
        build,
        name=name,
        family=FAMILY,
        expected=("invalid_argument",),
        allowed=allowed,
        first="the call",
        outcomes=ERROR,
    )


def _edited(
    number: int, place: Place, kind: Kind, edit: Callable[[Sketch, dict[str, Any]], None]
) -> Builder:
    """Return what builds a call of every member, with `edit` changing its arguments if wrong."""

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        call(sketch, kind, "the call", spec=Spec(root=number % 2))
        if wrong:
            edit(sketch, sketch.steps[-1][kind.name])
        return sketch

    return build


def _outside(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """The root as a rank of the world that the group has not (its own rank zero, say)."""
    outside = min(set(range(place.world_size)) - set(place.members))

    def edit(sketch: Sketch, arguments: dict[str, Any]) -> None:
        del sketch
        arguments[kind.role] = outside

    return _refused(
        _edited(number, place, kind, edit),
        f"{kind.name} with the root {outside} outside of {place.name}",
    )


def _both_spellings(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    def edit(sketch: Sketch, arguments: dict[str, Any]) -> None:
        del sketch
        arguments[f"group_{kind.role}"] = number % 2

    return _refused(
        _edited(number, place, kind, edit), f"{kind.name} with two roots in {place.name}"
    )


def _list_too_short(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    def edit(sketch: Sketch, arguments: dict[str, Any]) -> None:
        del arguments
        listed = "x0" if kind.name == "all_to_all" else "y0"
        short = f"[full(4, rank + i) for i in range({place.size - 1})]"
        held = sketch.tensors[listed]
        sketch.tensors[listed] = dict.fromkeys(held, short) if isinstance(held, dict) else short

    # off the root nothing is wrong: the others miss the one that was refused
    allowed = ("missing_participant",) if kind.rooted else ()
    return _refused(
        _edited(number, place, kind, edit),
        f"{kind.name} with a list that is too short in {place.name}",
        allowed,
    )


def _list_off_the_root(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    def edit(sketch: Sketch, arguments: dict[str, Any]) -> None:
        del arguments
        sketch.tensors["y0"] = f"[full(4, rank + i) for i in range({place.size})]"

    return _refused(
        _edited(number, place, kind, edit),
        f"{kind.name} with a list on every rank of {place.name}",
        ("missing_participant",),
    )


def _message(number: int, place: Place, name: str, wrong_in: str) -> Iterator[Program]:
    """A message to oneself, with a negative tag, to a rank outside of the group."""
    sends = "send" in name
    one, two = (place.members[0], place.members[-1])[:: 1 if sends else -1]
    where = {"group": place.group} if place.group else {}
    outside = min(set(range(place.world_size + 1)) - set(place.members))

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        sketch.tensor("letter", "full(3, rank)")
        role, other = ("dst", "src") if sends else ("src", "dst")
        action: dict[str, Any] = {"tensor": "letter", role: two, **where}
        if wrong:
            changed = {"itself": (role, one), "tag": ("tag", -1), "outside": (role, outside)}
            key, value = changed[wrong_in]
            action[key] = value
        handle = "work" if name.startswith("i") else None
        sketch.step("the call", ranks=one, handle=handle, **{name: action})
        if not wrong:
            answer = "recv" if sends else "send"
            back: dict[str, Any] = {answer: {"tensor": "letter", other: one, **where}}
            sketch.step("the answer", ranks=two, **back)
        if handle:
            sketch.step("the wait", ranks=one, wait=handle)
        return sketch

    return _refused(build, f"{name} with a wrong {wrong_in} in a {place.name}")


def _splits(number: int, place: Place) -> Iterator[Program]:
    """Split sizes of all_to_all_single that do not add up to the rows."""

    def build(*, wrong: bool) -> Sketch:
        sketch = Sketch(place)
        sketch.prelude(number)
        size = place.size
        sketch.tensor("x", f"arange({2 * size})")
        sketch.tensor("y", f"zeros({2 * size})")
        splits = [2] * size
        if wrong:
            splits[number % size] = 3
        action: dict[str, Any] = {"output": "y", "input": "x", "input_split_sizes": splits}
        if place.group:
            action["group"] = place.group
        sketch.step("the call", all_to_all_single=action)
        return sketch

    return _refused(build, f"splits that do not add up in a {place.name}")
