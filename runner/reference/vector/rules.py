"""What operators make of values that differ from rank to rank: of numbers, of tensors, of both.

What is neither of :mod:`runner.reference.vector.numbers` nor of
:mod:`runner.reference.vector.tensors` is :class:`Beyond`.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from runner.reference.vector.numbers import ARITHMETIC, COMPARED, compared, number, of_lanes
from runner.reference.vector.tensors import elementwise, tensor_of
from runner.reference.vector.values import EXACT, Lanes, Stack, Value, View, leave

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runner.reference.vector.tensors import Functions


def combined(functions: Functions, symbol: str, first: Value, second: Value) -> Value:
    """Apply a binary operator; at least one operand differs from rank to rank."""
    tensors = [each for each in (first, second) if isinstance(each, Stack | View | np.ndarray)]
    if not tensors:
        return (
            compared(symbol, first, second)
            if symbol in COMPARED
            else of_lanes(symbol, first, second)
        )
    if symbol not in ARITHMETIC and symbol not in COMPARED:
        leave(symbol)
    return elementwise(functions, symbol, first, second)


def negated(functions: Functions, value: Value) -> Value:
    """`-x`."""
    if isinstance(value, Lanes):
        values, low, high, _ = number(value)
        return Lanes(-values, -high, -low)
    return Stack(functions["u-"](tensor_of(value)))


def truth(value: Value) -> NDArray[np.bool_]:
    """Return for each rank whether a number is not zero."""
    if isinstance(value, Lanes):
        return value.values if value.kind == "b" else value.values != 0
    if isinstance(value, Stack | View) and value.shape == ():
        return np.asarray(value.take() != 0)
    return leave("a condition on a tensor")


def chosen(test: Value, first: Value, second: Value) -> Value:
    """`first if test else second`, both computed."""
    mask = truth(test)
    if isinstance(first, Stack | View) and isinstance(second, Stack | View):
        if first.shape != second.shape or first.dtype != second.dtype:
            leave("tensors of two shapes")
        wide = mask.reshape(-1, *(1,) * len(first.shape))
        return Stack(np.where(wide, first.take(), second.take()))
    one, low1, high1, _ = number(first)
    two, low2, high2, _ = number(second)
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
