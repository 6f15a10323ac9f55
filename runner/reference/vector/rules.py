"""What operators and functions make of values that differ from rank to rank.

Between numbers they are NumPy's on int64 and float64, within bounds in which those are Python's
own. With tensors they are the language's own functions on the stacked arrays: elementwise, so that
a stack gives what its tensors give one by one. Anything else is :class:`Beyond`.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from math import inf, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.reference.vector.values import EXACT, Lanes, Stack, Value, View, leave

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Functions = Mapping[str, Callable[..., Any]]

#: floats -> the integers up to which all are among them
_WHOLE = {"float32": 2**24, "float64": EXACT}

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
}
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def combined(functions: Functions, symbol: str, first: Value, second: Value) -> Value:
    """Apply a binary operator; at least one operand differs from rank to rank."""
    tensors = [each for each in (first, second) if isinstance(each, Stack | View | np.ndarray)]
    if not tensors:
        return (
            _compare(symbol, first, second)
            if symbol in _COMPARED
            else _of_lanes(symbol, first, second)
        )
    if symbol not in _ARITHMETIC and symbol not in _COMPARED:
        leave(symbol)
    return elementwise(functions, symbol, first, second)


# ---------------------------------------------------------------------- numbers


def _number(value: Value) -> tuple[Any, float, float, str]:
    """Return a number, or one for each rank, for NumPy: its values, bounds and kind."""
    if isinstance(value, Lanes):
        if value.kind == "b":
            return value.values.astype(np.int64), 0, 1, "i"
        return value.values, value.low, value.high, value.kind
    if value.__class__ in {bool, int}:
        return int(value), int(value), int(value), "i"
    if value.__class__ is float:
        return value, -inf, inf, "f"
    return leave(f"a number and {type(value).__name__}")


def _of_lanes(symbol: str, first: Value, second: Value) -> Lanes:
    one, low1, high1, kind1 = _number(first)
    two, low2, high2, kind2 = _number(second)
    apply = _ARITHMETIC.get(symbol)
    if apply is None:
        leave(symbol)
    if symbol == "/":
        if np.any(np.equal(two, 0)):
            leave("a division by zero")
        return Lanes(np.true_divide(one, two))
    if "f" in {kind1, kind2}:
        if symbol not in {"+", "-", "*"}:
            leave(symbol)
        with np.errstate(all="ignore"):
            return Lanes(
                np.asarray(apply(np.asarray(one, np.float64), np.asarray(two, np.float64)))
            )
    low, high = _BOUNDS[symbol](low1, high1, low2, high2)
    if low < -EXACT or high > EXACT:
        leave("large integers")
    return Lanes(apply(one, two), low, high)


def _sums(low1: float, high1: float, low2: float, high2: float) -> tuple[float, float]:
    return low1 + low2, high1 + high2


def _differences(low1: float, high1: float, low2: float, high2: float) -> tuple[float, float]:
    return low1 - high2, high1 - low2


def _products(low1: float, high1: float, low2: float, high2: float) -> tuple[float, float]:
    corners = (low1 * low2, low1 * high2, high1 * low2, high1 * high2)
    return min(corners), max(corners)


def _quotients(low1: float, high1: float, low2: float, high2: float) -> tuple[float, float]:
    _police_divisor(low2, high2)
    corners = (low1 // low2, low1 // high2, high1 // low2, high1 // high2)
    return min(corners), max(corners)


def _remainders(low1: float, high1: float, low2: float, high2: float) -> tuple[float, float]:
    _police_divisor(low2, high2)
    if low2 > 0:
        return 0, min(high1, high2 - 1) if low1 >= 0 else high2 - 1
    return low2 + 1, 0


def _police_divisor(low: float, high: float) -> None:
    if low <= 0 <= high:
        leave("a division by what may be zero")


def _bits(low1: float, high1: float, low2: float, high2: float) -> tuple[float, float]:
    if low1 < 0 or low2 < 0:
        leave("bits of negative integers")
    return 0, (1 << max(int(high1).bit_length(), int(high2).bit_length())) - 1


def _shifted_left(low1: float, high1: float, low2: float, high2: float) -> tuple[float, float]:
    if low1 < 0 or low2 < 0 or high2 > 53:  # noqa: PLR2004 -- bits of EXACT
        leave("a shift")
    return 0, int(high1) << int(high2)


def _shifted_right(low1: float, high1: float, low2: float, high2: float) -> tuple[float, float]:
    if low1 < 0 or low2 < 0 or high2 > 53:  # noqa: PLR2004 -- bits of EXACT
        leave("a shift")
    return 0, high1


_BOUNDS: dict[str, Callable[[float, float, float, float], tuple[float, float]]] = {
    "+": _sums,
    "-": _differences,
    "*": _products,
    "//": _quotients,
    "%": _remainders,
    "&": _bits,
    "|": _bits,
    "^": _bits,
    "<<": _shifted_left,
    ">>": _shifted_right,
}


def _compare(symbol: str, first: Value, second: Value) -> Lanes:
    one, two = _number(first)[0], _number(second)[0]
    return Lanes(_COMPARED[symbol](one, two), 0, 1)


def negated(functions: Functions, value: Value) -> Value:
    """`-x`."""
    if isinstance(value, Lanes):
        values, low, high, _ = _number(value)
        return Lanes(-values, -high, -low)
    return Stack(functions["u-"](tensor_of(value)))


def truth(value: Value) -> NDArray[np.bool_]:
    """Return for each rank whether a number is not zero."""
    if isinstance(value, Lanes):
        return value.values if value.kind == "b" else value.values != 0
    if isinstance(value, Stack | View) and value.shape == ():
        return np.asarray(value.take() != 0)
    return leave("a condition on a tensor")


def contained(item: Value, within: Value) -> Lanes:
    """`item in within`, a list or range of plain numbers."""
    if isinstance(item, Lanes) and isinstance(within, list | range):
        if isinstance(within, range) and item.kind != "i":
            leave("in a range")
        if all(each.__class__ in {int, bool} for each in within):
            return Lanes(np.isin(item.values, np.asarray(list(within), np.int64)), 0, 1)
    return leave("in")


def chosen(test: Value, first: Value, second: Value) -> Value:
    """`first if test else second`, both computed."""
    mask = truth(test)
    if isinstance(first, Stack | View) and isinstance(second, Stack | View):
        if first.shape != second.shape or first.dtype != second.dtype:
            leave("tensors of two shapes")
        wide = mask.reshape(-1, *(1,) * len(first.shape))
        return Stack(np.where(wide, first.take(), second.take()))
    one, low1, high1, _ = _number(first)
    two, low2, high2, _ = _number(second)
    if _type(first) != _type(second):
        leave("numbers of two kinds")
    values = np.where(mask, one, two)
    if _type(first) == "b":
        values = values.astype(np.bool_)
    return Lanes(values, min(low1, low2), max(high1, high2))


def _type(value: Value) -> str:
    if isinstance(value, Lanes):
        return value.kind
    return {bool: "b", int: "i", float: "f"}.get(value.__class__, "?")


# ---------------------------------------------------------------------- tensors


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


def whole_number(value: Value) -> Lanes:
    """`int(x)`: cut off towards zero."""
    if isinstance(value, Lanes):
        if value.kind != "f":
            return Lanes(value.values.astype(np.int64), value.low, value.high)
        numbers = value.values
    elif isinstance(value, Stack | View) and prod(value.shape) == 1:
        numbers = value.take().reshape(-1)
    else:
        leave("int")
    if numbers.dtype.kind == "f":
        numbers = np.trunc(numbers.astype(np.float64))
        if not np.isfinite(numbers).all():
            leave("int of what is no number")
    elif numbers.dtype.kind not in "biu":
        leave("int")
    low, high = (int(each) for each in (numbers.min(), numbers.max()))
    if low < -EXACT or high > EXACT:
        leave("large integers")
    return Lanes(numbers.astype(np.int64), low, high)
