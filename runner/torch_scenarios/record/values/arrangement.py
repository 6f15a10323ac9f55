"""Which part of a parameter of one process each rank has, learnt from the initial weights.

The values tell, and no strategy has to be known: a rank's part is the whole, rows along one
dimension, a block, or elements one after another (a flat parameter), under its own name first and
else under any. Constants (biases, norms) are alike everywhere, and follow the other parameters of
their module. A part that is nowhere in the reference means that the ranks draw other weights than
one process does; elements that no rank has mean that the ranks divide a parameter wrongly: two of
them took the same half.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from torch_scenarios.record.format import read_bounded, refusal
from torch_scenarios.record.values.format.record import ValueRecord
from torch_scenarios.record.values.invariants.finding import ValueFinding
from torch_scenarios.verdict.finding import ranks_text

Array = NDArray[Any]


Records = Mapping[int, ValueRecord]


#: step -> name -> value
Values = dict[int, dict[str, Array]]


#: places of a value at which a block of it is looked for
MOST_BLOCKS = 64


#: elements from which it is known where in a value they are, whatever its name
FEW = 4


#: names of the format -> dtypes
DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
    "BF16": "bfloat16",
}


#: relative distance up to which trained weights of a rank count as those of one process
TRAINED_APART = 1e-2


class Arrangement(Struct, frozen=True, kw_only=True):
    """Which part of a parameter a rank has: rows along a dimension; the whole where that is -1.

    Or a block, which begins at an element and is smaller along several dimensions. Or elements one
    after another, as FullyShardedDataParallel has them of a parameter (`use_orig_params`).
    """

    name: str
    dimension: int = -1
    rows: tuple[int, ...] = ()
    block: tuple[tuple[int, int], ...] = ()
    flat: tuple[int, int] | None = None

    def part_of(self, whole: Array) -> Array:
        """Return the part of a value of the reference's that is laid out alike."""
        if self.flat is not None:
            return whole.reshape(-1)[slice(*self.flat)]
        if self.block:
            return whole[tuple(slice(start, end) for start, end in self.block)]
        if self.dimension < 0:
            return whole
        return np.take(whole, self.rows, axis=self.dimension)


def read_tensors(folder: Path, rank: int) -> Values:
    """Return what a rank kept of each step. Raises ScenarioError where a file cannot be read."""
    return {
        int(path.stem.rpartition("-")[2]): read_tensor_file(path)
        for path in folder.glob(f"values-{rank:05d}-step-*.safetensors")
    }


#: bytes of the tensors that a rank keeps at one step
MOST_BYTES = 1 << 33


def read_tensor_file(path: Path) -> dict[str, Array]:
    """Return the tensors of a file, in its order. Raises ScenarioError where it cannot be read.

    Its order is that of the model; the library gives them in another one in each process.
    """
    import ml_dtypes
    from safetensors import SafetensorError, deserialize

    content = read_bounded(path, MOST_BYTES)
    try:
        read: Any = deserialize
        entries = read(content)
    except SafetensorError as error:
        raise refusal(path, "bad_record", f"it cannot be read: {error}") from None
    found = {}
    for name, entry in entries:
        kind = DTYPES.get(entry["dtype"])
        if kind is not None:
            dtype = np.dtype(ml_dtypes.bfloat16) if kind == "bfloat16" else np.dtype(kind)
            found[name] = np.frombuffer(entry["data"], dtype=dtype).reshape(entry["shape"])
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return {name: found[name] for name in header if name in found}


class UnlikeError(Exception):
    """A rank's parameter is no part of the reference."""


Layout = dict[int, dict[str, Arrangement]]


def arrange(reference: Values, held: Mapping[int, Values]) -> Layout:
    """Return which part of the reference each rank's parameters are."""
    wholes = find_first_weights(reference)
    trained = wholes.keys() - arrays_by_name(reference, 0, "before").keys()
    layout: Layout = {}
    for rank, values in held.items():
        layout[rank] = {}
        waiting = []
        later = trained - arrays_by_name(values, 0, "before").keys()
        for name, part in find_first_weights(values).items():
            if not part.size:
                continue
            if _is_constant(part):
                waiting.append((name, part))
                continue
            if name in later and _is_trained_alike(part, wholes[name]):
                layout[rank][name] = Arrangement(name=name)
                continue
            layout[rank][name] = _match(name, part, wholes, rank)
        for name, part in waiting:
            found = _follow(name, part, wholes, layout[rank])
            if found is not None:
                layout[rank][name] = found
    return layout


def _is_trained_alike(part: Array, whole: Array) -> bool:
    """Whether a parameter that first appears at a later step is about that of one process.

    A script may make its model anew and load what it has trained: the steps before it have rounded
    the weights of ranks otherwise than those of one process.
    """
    if part.shape != whole.shape:
        return False
    apart = np.abs(part.astype(float) - whole.astype(float)).max(initial=0.0)
    return bool(apart <= TRAINED_APART * np.abs(whole.astype(float)).max(initial=0.0))


def find_stepped(records: Records, layout: Layout) -> set[str]:
    """Return the parameters of one process, by name, that the optimizer of any rank steps."""
    return {
        at.name
        for rank, record in records.items()
        for name in record.stepped
        if (at := layout[rank].get(name)) is not None
    }


def arrays_by_name(values: Values, step: int, kind: str) -> dict[str, Array]:
    """Return what a rank keeps of one step and kind, by the names of its parameters."""
    start = f"{kind}/"
    own = values.get(step, {})
    return {name.removeprefix(start): v for name, v in own.items() if name.startswith(start)}


def find_first_weights(values: Values) -> dict[str, Array]:
    """Return each parameter as it was when an optimizer stepped it first."""
    found: dict[str, Array] = {}
    for step in sorted(values):
        found = {**arrays_by_name(values, step, "before"), **found}
    return found


def _is_constant(value: Array) -> bool:
    return bool(value.size < 2 or (value == value.reshape(-1)[0]).all())


def _match(name: str, part: Array, wholes: Mapping[str, Array], rank: int) -> Arrangement:
    """Return what part of the reference a parameter is: of its own name first, else of any."""
    order = [name] if name in wholes else []
    for each in (*order, *(other for other in wholes if other != name)):
        found = _place(each, part, wholes[each], few=2 if each == name else FEW)
        if found is not None:
            return found
    message = (
        f"`{name}` of rank {rank} is not a part of any parameter of one process "
        "(not_initialised_alike): load one checkpoint in both, draw the whole model from one seed "
        "and take each rank's part of it, or give the ranks its weights by `--init reference`"
    )
    raise UnlikeError(message)


def _place(name: str, part: Array, whole: Array, few: int) -> Arrangement | None:
    if part.dtype != whole.dtype:
        return None
    if part.shape == whole.shape and np.array_equal(part, whole):
        return Arrangement(name=name)
    if part.ndim != whole.ndim:
        return _find_elements(name, part, whole, few) if part.ndim == 1 else None
    for dimension in range(part.ndim):
        rest = part.shape[:dimension] + part.shape[dimension + 1 :]
        if rest != whole.shape[:dimension] + whole.shape[dimension + 1 :]:
            continue
        rows = _find_rows(np.moveaxis(part, dimension, 0), np.moveaxis(whole, dimension, 0))
        if rows is not None:
            return Arrangement(name=name, dimension=dimension, rows=rows)
    return _block(name, part, whole)


def _find_elements(name: str, part: Array, whole: Array, few: int) -> Arrangement | None:
    """Return which elements of a value a part is, one after another; None where it is too short."""
    flat = whole.reshape(-1)
    starts = np.flatnonzero(flat[: max(flat.size - part.size + 1, 0)] == part[0])
    for start in map(int, starts[:MOST_BLOCKS] if part.size >= few else ()):
        if np.array_equal(flat[start : start + part.size], part):
            return Arrangement(name=name, flat=(start, start + part.size))
    return None


def _find_rows(part: Array, whole: Array) -> tuple[int, ...] | None:
    """Return which rows of a whole the rows of a part are; None where it lacks one.

    Equal rows, as numbers of a bias in a lower precision often are, cannot be told apart: a row
    follows the one before it where it can, and else begins the longest run.
    """
    theirs, own = [row.tobytes() for row in whole], [row.tobytes() for row in part]
    places: dict[bytes, list[int]] = {}
    for at, row in enumerate(theirs):
        places.setdefault(row, []).append(at)
    found: list[int] = []
    for number, row in enumerate(own):
        if row not in places:
            return None
        follows = found[-1] + 1 if found else len(theirs)
        if follows < len(theirs) and theirs[follows] == row:
            found.append(follows)
            continue
        alike = places[row][:MOST_BLOCKS]
        found.append(
            alike[0] if len(alike) < 2 else max(alike, key=_count_run(own[number:], theirs))
        )
    return tuple(found)


def _count_run(own: Sequence[bytes], theirs: Sequence[bytes]) -> Callable[[int], int]:
    """Return what counts the rows that are equal one after another from a place on."""

    def count(start: int) -> int:
        pairs = zip(own, theirs[start:], strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    return count


def _block(name: str, part: Array, whole: Array) -> Arrangement | None:
    """Return which block of a value a part is: two strategies split it along two dimensions."""
    if any(own > all_of for own, all_of in zip(part.shape, whole.shape, strict=True)):
        return None
    for at in np.argwhere(whole == part.reshape(-1)[0])[:MOST_BLOCKS]:
        bounds = tuple(
            (int(start), int(start) + size) for start, size in zip(at, part.shape, strict=True)
        )
        found = Arrangement(name=name, block=bounds)
        if np.array_equal(found.part_of(whole), part):
            return found
    return None


def _follow(
    name: str,
    part: Array,
    wholes: Mapping[str, Array],
    known: Mapping[str, Arrangement],
) -> Arrangement | None:
    """Return where a constant is: with the other parameters of its module."""
    module, _, own = name.rpartition(".")
    for other, arrangement in known.items():
        if other.rpartition(".")[0] != module:
            continue
        target = ".".join(filter(None, (arrangement.name.rpartition(".")[0], own)))
        whole = wholes.get(target)
        if whole is None:
            continue
        if whole.shape == part.shape:
            return Arrangement(name=target)
        if arrangement.dimension == 0 and len(arrangement.rows) == part.shape[0]:
            return Arrangement(name=target, dimension=0, rows=arrangement.rows)
    for target in (*_rename_nearest(name, known), name):
        whole = wholes.get(target)
        if whole is not None and whole.shape == part.shape:
            return Arrangement(name=target)
    return None


def _rename_nearest(name: str, known: Mapping[str, Arrangement]) -> Iterator[str]:
    """Yield what a parameter is called in the reference, as its nearest neighbours are renamed.

    A norm has no random weight, and the stage or the expert around it has another name.
    """
    path = name.split(".")

    def count_common(other: str) -> int:
        pairs = zip(path, other.split("."), strict=False)
        return len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])

    for other in sorted(known, key=count_common, reverse=True):
        mine, theirs = other.split("."), known[other].name.split(".")
        while mine and theirs and mine[-1] == theirs[-1]:
            del mine[-1], theirs[-1]
        if path[: len(mine)] == mine:
            yield ".".join([*theirs, *path[len(mine) :]])


#: what to do about rows that no rank has, where no two ranks have the same ones
TAKE_THE_REST = (
    "give every row to a rank, also those that a division by the number of ranks leaves over: pad "
    "the dimension that is split, or let the last rank take the rest"
)


def find_wrong_arrangement(
    reference: Values, layout: Layout, records: Records
) -> Iterator[ValueFinding]:
    """Yield a parameter of the reference of which the ranks together lack a part."""
    for name, whole in find_first_weights(reference).items():
        parts = {
            rank: each for rank, own in layout.items() for each in own.values() if each.name == name
        }
        if not parts or any(each.dimension < 0 for each in parts.values()):
            continue
        (dimension,) = {each.dimension for each in parts.values()} or {0}
        have = {row for each in parts.values() for row in each.rows}
        lack = whole.shape[dimension] - len(have)
        if lack > 0:
            rank = next(iter(parts))
            step = records[rank].steps[0]
            yield ValueFinding(
                code="wrong_arrangement",
                message=f"{lack} of {whole.shape[dimension]} rows of `{name}` (dimension "
                f"{dimension}) are on no rank, and {ranks_text(tuple(parts))} hold parts of it",
                ranks=tuple(parts),
                rank=rank,
                place=records[rank].parameters[records[rank].names[name]].place
                if name in records[rank].names
                else step.place,
                hint=TAKE_THE_REST
                if sum(len(each.rows) for each in parts.values()) == len(have)
                else "let each rank of the group take another part: by its number in the group",
                name=name,
            )
            return
