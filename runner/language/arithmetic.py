"""The arithmetic operators of the expression language: a table, and the bounds on numbers.

Says for each operator what it is between Python numbers, what it is between arrays, in which dtype
it is computed, and which operands it refuses. Applied by :mod:`runner.language.operators`.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from runner.language.guarded import MAX_INT_BITS
from runner.language.promotion import (
    DEFAULT_FLOAT,
    NARROW,
    bits,
    is_exact,
    kind,
    widest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

#: whatever an expression holds: a number, an array of either library, a list
Value: TypeAlias = Any

#: the types of plain numbers
NUMBERS = frozenset({bool, int, float, complex})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One arithmetic operator.

    `compute` gives, for the dtype in which the operands meet, the dtype of the result and the one
    to compute in. `check` sees the operands before that. `scalar` works on Python numbers.
    """

    symbol: str
    scalar: Callable[[Any, Any], Any]
    array: Callable[[Any, Any], Any]
    compute: Callable[[str], tuple[str, str]]
    check: Callable[[Any, Any, str], None] | None = None


# ---------------------------------------------------------------------- numbers


def bounded(value: Value) -> Value:
    """Return a number; OverflowError where it is an integer of too many bits."""
    if value.__class__ is int and value.bit_length() > MAX_INT_BITS:
        message = f"an integer of {value.bit_length()} bits; at most {MAX_INT_BITS} are allowed"
        raise OverflowError(message)
    return value


def product(first: Value, second: Value) -> Value:
    """Multiply numbers; what goes in is bounded, so what comes out can be checked afterwards."""
    return bounded(first * second)


def power(base: Value, exponent: Value) -> Value:
    """Raise a number to a power, after a look at how many bits that would have."""
    if base.__class__ is int and exponent.__class__ is int and exponent > 0:
        expected = base.bit_length() * exponent
        if base not in {-1, 0, 1} and expected > 2 * MAX_INT_BITS:
            message = f"a power of about {expected} bits; at most {MAX_INT_BITS} are allowed"
            raise OverflowError(message)
    return bounded(base**exponent)


def shifted_left(value: Value, by: Value) -> Value:
    """Shift an integer, after a look at how many bits that would have."""
    if by.__class__ is int and by > MAX_INT_BITS:
        message = f"a shift by {by} bits; at most {MAX_INT_BITS} are allowed"
        raise OverflowError(message)
    return bounded(value << by)


# ---------------------------------------------------------------------- dtypes


def rounded(dtype: str) -> tuple[str, str]:
    """Compute in the dtype itself, narrow floats in float32."""
    return dtype, DEFAULT_FLOAT if dtype in NARROW else dtype


def _difference(dtype: str) -> tuple[str, str]:
    _demand("numbers, not bool (`^` tells where bools differ)", dtype, {"int", "float", "complex"})
    return rounded(dtype)


def _true_division(dtype: str) -> tuple[str, str]:
    return (DEFAULT_FLOAT, "float64") if is_exact(dtype) else rounded(dtype)


def _floor_division(dtype: str) -> tuple[str, str]:
    _demand("numbers that are neither bool nor complex", dtype, {"int", "float"})
    return rounded(dtype)


def _power(dtype: str) -> tuple[str, str]:
    _demand("numbers, not bool", dtype, {"int", "float", "complex"})
    return dtype, widest(dtype)


def _bitwise(dtype: str) -> tuple[str, str]:
    _demand("integers or bool", dtype, {"bool", "int"})
    return dtype, dtype


def _shift(dtype: str) -> tuple[str, str]:
    _demand("integers", dtype, {"int"})
    return dtype, dtype


def _demand(what: str, dtype: str, kinds: set[str]) -> None:
    if kind(dtype) not in kinds:
        message = f"the operator takes {what}; this is {dtype}"
        raise TypeError(message)


# ---------------------------------------------------------------------- operands


def _no_zero(_: Value, divisor: Value, dtype: str) -> None:
    if is_exact(dtype) and bool((divisor == 0) if is_number(divisor) else (divisor == 0).any()):
        message = "integer division by zero"
        raise ZeroDivisionError(message)


def _no_negative(_: Value, exponent: Value, dtype: str) -> None:
    if is_exact(dtype) and bool(exponent < 0 if is_number(exponent) else (exponent < 0).any()):
        message = "integers have no negative powers; use a float"
        raise ValueError(message)


def _in_width(_: Value, by: Value, dtype: str) -> None:
    wrong = (by < 0) | (by >= bits(dtype))
    if bool(wrong if is_number(by) else wrong.any()):
        message = f"{dtype} can be shifted by 0 to {bits(dtype) - 1} bits"
        raise ValueError(message)


def is_number(value: Value) -> bool:
    """Return whether `value` is a plain Python number."""
    return value.__class__ in NUMBERS


RULES = (
    Rule(symbol="+", scalar=operator.add, array=operator.add, compute=rounded),
    Rule(symbol="-", scalar=operator.sub, array=operator.sub, compute=_difference),
    Rule(symbol="*", scalar=product, array=operator.mul, compute=rounded),
    Rule(symbol="/", scalar=operator.truediv, array=operator.truediv, compute=_true_division),
    Rule(
        symbol="//",
        scalar=operator.floordiv,
        array=operator.floordiv,
        compute=_floor_division,
        check=_no_zero,
    ),
    Rule(
        symbol="%",
        scalar=operator.mod,
        array=operator.mod,
        compute=_floor_division,
        check=_no_zero,
    ),
    Rule(symbol="**", scalar=power, array=operator.pow, compute=_power, check=_no_negative),
    Rule(symbol="&", scalar=operator.and_, array=operator.and_, compute=_bitwise),
    Rule(symbol="|", scalar=operator.or_, array=operator.or_, compute=_bitwise),
    Rule(symbol="^", scalar=operator.xor, array=operator.xor, compute=_bitwise),
    Rule(
        symbol="<<",
        scalar=shifted_left,
        array=operator.lshift,
        compute=_shift,
        check=_in_width,
    ),
    Rule(
        symbol=">>", scalar=operator.rshift, array=operator.rshift, compute=_shift, check=_in_width
    ),
)

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
