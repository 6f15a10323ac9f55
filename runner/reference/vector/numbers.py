"""What operators make of numbers that differ from rank to rank.

They are NumPy's on int64 and float64, within bounds in which those are Python's own.
"""

from __future__ import annotations

import operator
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.reference.vector.values import EXACT, Lanes, Value, leave

if TYPE_CHECKING:
    from collections.abc import Callable

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
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
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def number(value: Value) -> tuple[Any, float, float, str]:
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


def of_lanes(symbol: str, first: Value, second: Value) -> Lanes:
    """Apply an arithmetic operator to numbers."""
    one, low1, high1, kind1 = number(first)
    two, low2, high2, kind2 = number(second)
    apply = ARITHMETIC.get(symbol)
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


def compared(symbol: str, first: Value, second: Value) -> Lanes:
    """Compare numbers."""
    one, two = number(first)[0], number(second)[0]
    return Lanes(COMPARED[symbol](one, two), 0, 1)


def contained(item: Value, within: Value) -> Lanes:
    """`item in within`, a list or range of plain numbers."""
    if isinstance(item, Lanes) and isinstance(within, list | range):
        if isinstance(within, range) and item.kind != "i":
            leave("in a range")
        if all(each.__class__ in {int, bool} for each in within):
            return Lanes(np.isin(item.values, np.asarray(list(within), np.int64)), 0, 1)
    return leave("in")
