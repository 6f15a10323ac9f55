"""Parts of tensors and lists by indexes that may differ from rank to rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.reference.vector.values import Lanes, Stack, Value, View, leave

if TYPE_CHECKING:
    from numpy.typing import NDArray


def part(value: Value, index: Value) -> Value:
    """`value[index]`, where either differs from rank to rank: a View of a View, else a copy."""
    if isinstance(value, Stack | View):
        if _plain(index):
            return _same_part(value, index if isinstance(index, tuple) else (index,))
        return _own_part(value, index)
    if isinstance(value, np.ndarray) and isinstance(index, Lanes | slice):
        return _own_part(Stack(value[np.newaxis]), index)
    if isinstance(value, list | range) and isinstance(index, Lanes):
        return _item(value, index)
    return leave("an index")


def _plain(index: Value) -> bool:
    if isinstance(index, tuple):
        return all(_plain(each) for each in index)
    if index.__class__ is slice:
        forwards = index.step is None or (index.step.__class__ is int and index.step > 0)
        bounds = (index.start, index.stop)
        return forwards and all(each is None or each.__class__ is int for each in bounds)
    return index is None or index.__class__ is int


def _same_part(value: Stack | View, index: tuple[Any, ...]) -> Stack | View:
    at = (slice(None), *index)
    if isinstance(value, View):
        return value.part(value.places()[at])
    return Stack(value.values[at])


def _own_part(value: Stack | View, index: Value) -> Stack | View:
    """Return what each rank's own integer, or slice, takes along dimension 0."""
    if not value.shape:
        leave("an index into a number")
    length = value.shape[0]
    if isinstance(index, Lanes) and index.kind == "i":
        at = _within(index, length)
    elif index.__class__ is slice and index.step is None:
        at = _run(index, length)
    else:
        leave("an index")
    if isinstance(value, Stack):
        return Stack(_gathered(value.values, at))
    if value.offsets is None and len(value.shape) == 1:
        return value.part(at)
    return value.part(_gathered(value.places(), at))


def _gathered(values: NDArray[Any], at: NDArray[np.int64]) -> NDArray[Any]:
    if len(values) == 1:
        return np.asarray(values[0][at])
    rows = np.arange(len(values)).reshape(-1, *(1,) * (at.ndim - 1))
    return np.asarray(values[rows, at])


def _within(index: Lanes, length: int) -> NDArray[np.int64]:
    values = index.values
    if index.low < 0 or index.high >= length:
        low, high = int(values.min()), int(values.max())
        if low < -length or high >= length:
            leave("an index out of bounds")
        if low < 0:
            values = np.where(values < 0, values + length, values)
    return values


def _run(index: slice, length: int) -> NDArray[np.int64]:
    """Return the places `[L, count]` of a slice; as many on every rank."""
    first = _bound(index.start, 0, length)
    last = _bound(index.stop, length, length)
    counts = np.maximum(last - first, 0)
    count = int(counts.flat[0]) if counts.ndim else int(counts)
    if (counts != count).any():
        leave("slices of several lengths")
    starts = np.asarray(first).reshape(-1, 1)
    return starts if count == 1 else starts + np.arange(count)


def _bound(bound: Value, default: int, length: int) -> Any:  # noqa: ANN401 -- an integer or many
    if bound is None:
        return np.int64(default)
    if bound.__class__ is int:
        return np.int64(slice(bound, None).indices(length)[0])
    if not isinstance(bound, Lanes) or bound.kind != "i":
        leave("a bound of a slice")
    values = bound.values
    if bound.low < 0:
        values = np.where(values < 0, values + length, values)
    if bound.low < 0 or bound.high > length:
        values = np.clip(values, 0, length)
    return values


def _item(items: list[Any] | range, index: Lanes) -> Lanes:
    if index.kind != "i" or not items or any(each.__class__ is not int for each in items):
        leave("an item of a list")
    table = np.asarray(list(items), np.int64)
    return Lanes(table[_within(index, len(items))], int(table.min()), int(table.max()))
