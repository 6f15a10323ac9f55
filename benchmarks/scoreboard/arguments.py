"""Arguments: of datatype, shape, root and operator that disagree, and those that torch refuses."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from benchmarks.scoreboard.collectives import KINDS, ROOTED, TENSOR_KINDS, Kind, Spec, call
from benchmarks.scoreboard.program import (
    ANYTHING,
    ERROR,
    FOUR,
    PART,
    PLACES,
    SPARSE,
    THREE,
    TWO,
    Draft,
    Place,
    Program,
    Writer,
    twins,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# ---------------------------------------------------------------------------- disagreements

DTYPES = (
    ("float32", "int32"),
    ("float32", "float64"),
    ("int64", "int32"),
    ("bfloat16", "float16"),
    ("uint8", "int8"),
)
ROWS = ((4, 5), (4, 3), (2, 1), (4, 40))
OPS = (
    ("sum", "max", "float32"),
    ("min", "max", "int64"),
    ("product", "sum", "float64"),
    ("avg", "sum", "float32"),
    ("band", "bor", "int64"),
    ("bxor", "sum", "int32"),
)
#: of each class: what one member passes, and what the others pass
DATATYPES = [(Spec(dtype=one), Spec(dtype=two)) for one, two in DTYPES]
SHAPES = [(Spec(rows=one), Spec(rows=two)) for one, two in ROWS]
OPERATORS = [(Spec(op=one, dtype=dtype), Spec(op=two, dtype=dtype)) for one, two, dtype in OPS]
REDUCING = [kind for kind in KINDS if kind.reduces]


def disagreements() -> Iterator[Program]:
    """Yield four classes: datatype, shape, root and operator."""
    yield from _each("datatype", "dtype_mismatch", product(TENSOR_KINDS, DATATYPES), (0, 3))
    yield from _each("shape", "shape_mismatch", product(TENSOR_KINDS, SHAPES), (0, 3))
    for number, (kind, place) in enumerate(product(ROOTED, PLACES)):
        for root, wrong in sorted({(0, 1), (1, 0), (0, place.size - 1)}):
            pair = Spec(root=root), Spec(root=wrong)
            yield from _disagree(number + wrong, place, kind, pair, "root", "root_mismatch")
    yield from _each("operator", "op_mismatch", product(REDUCING, OPERATORS), (0, 2, 5))


def _each(
    family: str,
    expected: str,
    cases: Iterable[tuple[Kind, tuple[Spec, Spec]]],
    shifts: tuple[int, ...],
) -> Iterator[Program]:
    for number, (kind, pair) in enumerate(cases):
        for shift in shifts:
            place = PLACES[(number + shift) % len(PLACES)]
            yield from _disagree(number + shift, place, kind, pair, family, expected)


def _disagree(
    number: int, place: Place, kind: Kind, pair: tuple[Spec, Spec], family: str, expected: str
) -> Iterator[Program]:
    """One member passes something else than the others; in the twin all pass the same."""
    usual, other = pair
    odd = place.members[number % place.size]
    later = number % 4 == 1 and not kind.objects
    apart = (number + 3) % 5 == 0

    def write(draft: Draft, *, wrong: bool) -> None:
        beliefs = {odd: other} if wrong else {}
        call(draft, kind, "the call", spec=usual, odd=beliefs, handle="work" if later else None)
        if apart:  # the odd one's call stands in a step of its own
            step = draft.steps.pop()
            draft.steps += [
                {**step, "ranks": place.others(odd)},
                {**step, "name": "the call of one", "ranks": [odd]},
            ]
        if later:
            draft.step("the wait", wait="work")
        if number % 2:
            draft.step("afterwards", barrier={})

    differs = ", ".join(
        f"{name} {before} or {after}"
        for name in ("dtype", "rows", "op", "root")
        if (before := getattr(usual, name)) != (after := getattr(other, name))
    )
    return twins(
        write,
        place,
        number,
        name=f"{kind.name} with {differs} on rank {odd} of a {place.name}"
        + (", async" if later else ""),
        family=family,
        expected=(expected,),
        first="the call",
        outcomes=ANYTHING,
    )


# ---------------------------------------------------------------------------- refusals

LISTED = ("all_gather", "gather", "scatter", "reduce_scatter", "all_to_all")


def refusals() -> Iterator[Program]:
    """Yield what torch refuses at the call, on the rank that makes it."""
    by_name = {kind.name: kind for kind in KINDS}
    for number, (kind, place) in enumerate(product(ROOTED, (PART, SPARSE))):
        yield from _outside(number, place, kind)
        yield from _both_spellings(number, place, kind)
    for number, (name, place) in enumerate(product(LISTED, PLACES)):
        yield from _list_too_short(number, place, by_name[name])
    for number, (name, place) in enumerate(product(("gather", "scatter"), (TWO, THREE, SPARSE))):
        yield from _list_off_the_root(number, place, by_name[name])
    for number, (name, place) in enumerate(
        product(("send", "isend", "recv", "irecv"), (TWO, THREE, PART, SPARSE))
    ):
        for wrong in ("itself", "tag", "outside"):
            yield from _message(number, place, name, wrong)
    for number, place in enumerate((TWO, THREE, FOUR, PART, SPARSE)):
        yield from _splits(number, place)


def _refused(
    write: Writer, place: Place, number: int, name: str, allowed: tuple[str, ...] = ()
) -> Iterator[Program]:
    return twins(
        write,
        place,
        number,
        name=name,
        family="invalid argument",
        expected=("invalid_argument",),
        allowed=allowed,
        first="the call",
        outcomes=ERROR,
    )


def _edited(number: int, kind: Kind, edit: Callable[[Draft, dict[str, Any]], None]) -> Writer:
    """Return what writes a call of every member, with `edit` changing its arguments if wrong."""

    def write(draft: Draft, *, wrong: bool) -> None:
        call(draft, kind, "the call", spec=Spec(root=number % 2))
        if wrong:
            edit(draft, draft.steps[-1][kind.name])

    return write


def _outside(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    """The root is a rank of the world that the group has not (its own rank zero, say)."""
    outside = min(set(range(place.world_size)) - set(place.members))

    def edit(_: Draft, arguments: dict[str, Any]) -> None:
        arguments[kind.role] = outside

    name = f"{kind.name} with the root {outside} outside of {place.name}"
    return _refused(_edited(number, kind, edit), place, number, name)


def _both_spellings(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    def edit(_: Draft, arguments: dict[str, Any]) -> None:
        arguments[f"group_{kind.role}"] = number % 2

    name = f"{kind.name} with two roots in {place.name}"
    return _refused(_edited(number, kind, edit), place, number, name)


def _list_too_short(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    def edit(draft: Draft, _: dict[str, Any]) -> None:
        listed = "x0" if kind.lists("x") else "y0"
        short = f"[full(4, rank + i) for i in range({place.size - 1})]"
        held = draft.tensors[listed]
        draft.tensors[listed] = dict.fromkeys(held, short) if isinstance(held, dict) else short

    # off the root nothing is wrong: the others miss the one that was refused
    allowed = ("missing_participant",) if kind.rooted else ()
    name = f"{kind.name} with a list that is too short in {place.name}"
    return _refused(_edited(number, kind, edit), place, number, name, allowed)


def _list_off_the_root(number: int, place: Place, kind: Kind) -> Iterator[Program]:
    def edit(draft: Draft, _: dict[str, Any]) -> None:
        draft.tensors["y0"] = f"[full(4, rank + i) for i in range({place.size})]"

    name = f"{kind.name} with a list on every rank of {place.name}"
    return _refused(_edited(number, kind, edit), place, number, name, ("missing_participant",))


def _message(number: int, place: Place, how: str, wrong_in: str) -> Iterator[Program]:
    """A message to oneself, with a negative tag, to a rank outside of the group."""
    sends = "send" in how
    rank, peer = place.ends if sends else place.ends[::-1]
    role = "dst" if sends else "src"
    outside = min(set(range(place.world_size + 1)) - set(place.members))
    spoilt = {"itself": {role: rank}, "tag": {"tag": -1}, "outside": {role: outside}}[wrong_in]

    def write(draft: Draft, *, wrong: bool) -> None:
        draft.tensor("letter")
        handle = "work" if how.startswith("i") else None
        action = {"tensor": "letter", role: peer, **place.on_group, **(spoilt if wrong else {})}
        draft.step("the call", ranks=rank, handle=handle, **{how: action})
        if not wrong:
            _, there = draft.sides(sends=sends)
            there("the answer", "recv" if sends else "send", peer, rank)
        if handle:
            draft.step("the wait", ranks=rank, wait=handle)

    return _refused(write, place, number, f"{how} with a wrong {wrong_in} in a {place.name}")


def _splits(number: int, place: Place) -> Iterator[Program]:
    """Split sizes of all_to_all_single that do not add up to the rows."""
    size = place.size

    def write(draft: Draft, *, wrong: bool) -> None:
        draft.tensor("x", value=f"arange({2 * size})")
        draft.tensor("y", value=f"zeros({2 * size})")
        splits = [2] * size
        if wrong:
            splits[number % size] = 3
        action = {"output": "y", "input": "x", "input_split_sizes": splits, **place.on_group}
        draft.step("the call", all_to_all_single=action)

    return _refused(write, place, number, f"splits that do not add up in a {place.name}")
