"""What functions make of tensors that differ from rank to rank.

The language's own functions work on the stacked arrays, where they work element by element: a stack
gives what its tensors give one by one.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.reference.vector.values import EXACT, Lanes, Stack, Value, View, leave

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Functions = Mapping[str, Callable[..., Any]]

#: floats -> the integers up to which all are among them
_WHOLE = {"float32": 2**24, "float64": EXACT}


def tensor_of(value: Value) -> NDArray[Any]:
    """Return the elements of what is a tensor on every rank, `[L, *shape]`."""
    if isinstance(value, Stack | View):
        return value.take()
    return leave("no tensor")


def elementwise(functions: Functions, key: str, *operands: Value) -> Stack:
    """Apply a function that works element by element, ranks apart."""
    tensors = [each for each in operands if isinstance(each, Stack | View | np.ndarray)]
    depth = max(_depth(each) for each in tensors)
    dtype = next((each.dtype for each in tensors if each.dtype != np.bool_), tensors[0].dtype)
    prepared = [_operand(functions, key, each, dtype, depth) for each in operands]
    return Stack(np.asarray(functions[key](*prepared)))


def _depth(value: Value) -> int:
    return value.ndim if isinstance(value, np.ndarray) else len(value.shape)


def _operand(
    functions: Functions, key: str, value: Value, dtype: np.dtype[Any], depth: int
) -> Value:
    """Return an operand with `depth` dimensions behind that of the ranks."""
    if isinstance(value, Stack | View):
        found = value.take()
        missing = depth - len(value.shape)
        return found.reshape(len(found), *(1,) * missing, *value.shape) if missing else found
    if isinstance(value, np.ndarray):
        return value.reshape((1,) * (1 + depth - value.ndim) + value.shape)
    if isinstance(value, Lanes):
        return _fitting(functions, key, value, dtype).reshape(-1, *(1,) * depth)
    if value.__class__ in {bool, int, float, complex}:
        return value
    return leave("a list among tensors")


def _fitting(functions: Functions, key: str, lanes: Lanes, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return numbers as elements of `dtype`, where that makes no difference to the result."""
    if lanes.kind == "b":
        if key == "where()":
            return lanes.values
        leave("a condition among tensors")
    if lanes.kind != "i":
        leave("fractions among tensors")
    most = _WHOLE.get(dtype.name)
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        fits = bounds.min <= lanes.low and lanes.high <= bounds.max
    else:
        fits = most is not None and -most <= lanes.low and lanes.high <= most
    if not fits or not _same_dtype(functions[key], key, dtype):
        leave("a number that its tensor would round")
    return lanes.values.astype(dtype)


@lru_cache(maxsize=256)
def _same_dtype(function: Callable[..., Any], key: str, dtype: np.dtype[Any]) -> bool:
    """Return whether a number and a tensor of one element give the same dtype with a tensor."""
    one = np.ones(1, dtype)
    condition = (np.ones(1, np.bool_),) if key == "where()" else ()
    made = [function(*condition, one, each) for each in (1, one)]
    return bool(made[0].dtype == made[1].dtype)


def joined(functions: Functions, key: str, parts: Sequence[Value], axis: Value, size: int) -> Stack:
    """`concat` and `stack` of tensors, of which some differ from rank to rank."""
    if axis.__class__ is not int or axis < 0:
        leave("an axis")
    arrays = []
    for part in parts:
        if isinstance(part, np.ndarray):
            arrays.append(np.broadcast_to(part, (size, *part.shape)))
        else:
            arrays.append(tensor_of(part))
    return Stack(np.asarray(functions[key](arrays, axis + 1)))


def filled(functions: Functions, shape: Value, value: Value, dtype: Value) -> Stack:
    """`full` with a number for each rank."""
    sample = functions["zeros()"](shape, dtype)
    kind = sample.dtype.kind
    if isinstance(value, Stack | View) and prod(value.shape) == 1:
        numbers = value.take().reshape(-1)
        if numbers.dtype != sample.dtype:
            leave("a fill value of another dtype")
    elif isinstance(value, Lanes):
        numbers = value.values
        exact = value.kind == "i" and kind in "iu"
        if exact:
            bounds = np.iinfo(sample.dtype)
            exact = bounds.min <= value.low and value.high <= bounds.max
        if not exact and not (kind == "f" and sample.dtype.itemsize > 2):  # noqa: PLR2004 -- a narrow float
            leave("a fill value that may not fit")
        numbers = numbers.astype(sample.dtype)
    else:
        leave("a fill value")
    wide = numbers.reshape(-1, *(1,) * sample.ndim)
    return Stack(np.broadcast_to(wide, (len(wide), *sample.shape)))


def reshaped(value: Value, shape: Value) -> Value:
    """`reshape`, of a part of what a name holds as a part of it."""
    sizes = tuple(shape) if isinstance(shape, list | range) else (shape,)
    if not isinstance(value, Stack | View) or any(
        each.__class__ is not int or each < 0 for each in sizes
    ):
        leave("reshape")
    if prod(sizes) != prod(value.shape):
        leave("another number of elements")
    if isinstance(value, View):
        places = value.places()
        return value.part(places.reshape(len(places), *sizes))
    return Stack(value.values.reshape(len(value.values), *sizes))
