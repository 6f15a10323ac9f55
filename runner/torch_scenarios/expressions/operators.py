"""The guarded operators of the expression language, with the bounds on what they make."""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import inf, prod
from typing import Any

import numpy as np
from msgspec import Struct

from torch_scenarios.expressions.arrays import (
    DEFAULT_FLOAT,
    NARROW,
    ArrayLibrary,
    Value,
    bits,
    integer_range,
    is_exact,
    kind,
    make_array,
    promote,
    promote_by_number,
    widest,
)
from torch_scenarios.expressions.signatures import BEGIN, CHAIN, MAX_INT_BITS
from torch_scenarios.limits import Budget

# -------------------------------------------------------------------------------------------------
# The arithmetic operators of the expression language: a table, and the bounds on numbers.
#
# Says for each operator what it is between Python numbers, what it is between arrays, in which
# dtype it is computed, and which operands it refuses. Applied by
# :mod:`torch_scenarios.expressions.operators`.

#: the types of plain numbers
NUMBERS = frozenset({bool, int, float, complex})


class Rule(Struct, frozen=True, kw_only=True):
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


def bound(value: Value) -> Value:
    """Return a number; OverflowError where it is an integer of too many bits."""
    if value.__class__ is int and value.bit_length() > MAX_INT_BITS:
        message = f"an integer of {value.bit_length()} bits; at most {MAX_INT_BITS} are allowed"
        raise OverflowError(message)
    return value


def product(first: Value, second: Value) -> Value:
    """Multiply numbers; what goes in is bounded, so what comes out can be checked afterwards."""
    return bound(first * second)


def power(base: Value, exponent: Value) -> Value:
    """Raise a number to a power, after a look at how many bits that would have."""
    if base.__class__ is int and exponent.__class__ is int and exponent > 0:
        expected = base.bit_length() * exponent
        if base not in {-1, 0, 1} and expected > 2 * MAX_INT_BITS:
            message = f"a power of about {expected} bits; at most {MAX_INT_BITS} are allowed"
            raise OverflowError(message)
    return bound(base**exponent)


def shift_left(value: Value, by: Value) -> Value:
    """Shift an integer, after a look at how many bits that would have."""
    if by.__class__ is int and by > MAX_INT_BITS:
        message = f"a shift by {by} bits; at most {MAX_INT_BITS} are allowed"
        raise OverflowError(message)
    return bound(value << by)


# ---------------------------------------------------------------------- dtypes


def choose_dtypes(dtype: str) -> tuple[str, str]:
    """Compute in the dtype itself, narrow floats in float32."""
    return dtype, DEFAULT_FLOAT if dtype in NARROW else dtype


def _difference(dtype: str) -> tuple[str, str]:
    _demand("numbers, not bool (`^` tells where bools differ)", dtype, {"int", "float", "complex"})
    return choose_dtypes(dtype)


def _true_division(dtype: str) -> tuple[str, str]:
    return (DEFAULT_FLOAT, "float64") if is_exact(dtype) else choose_dtypes(dtype)


def _floor_division(dtype: str) -> tuple[str, str]:
    _demand("numbers that are neither bool nor complex", dtype, {"int", "float"})
    return choose_dtypes(dtype)


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


def _check_width(_: Value, by: Value, dtype: str) -> None:
    wrong = (by < 0) | (by >= bits(dtype))
    if bool(wrong if is_number(by) else wrong.any()):
        message = f"{dtype} can be shifted by 0 to {bits(dtype) - 1} bits"
        raise ValueError(message)


def is_number(value: Value) -> bool:
    """Return whether `value` is a plain Python number."""
    return value.__class__ in NUMBERS


RULES = (
    Rule(symbol="+", scalar=operator.add, array=operator.add, compute=choose_dtypes),
    Rule(symbol="-", scalar=operator.sub, array=operator.sub, compute=_difference),
    Rule(symbol="*", scalar=product, array=operator.mul, compute=choose_dtypes),
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
        scalar=shift_left,
        array=operator.lshift,
        compute=_shift,
        check=_check_width,
    ),
    Rule(
        symbol=">>",
        scalar=operator.rshift,
        array=operator.rshift,
        compute=_shift,
        check=_check_width,
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


# -------------------------------------------------------------------------------------------------
# Comparisons of the expression language, over either array library.
#
# Between Python numbers and lists they are Python's own; a tensor is compared element by element,
# in a dtype that loses nothing of either side.

_INT64 = integer_range("int64")


class Comparisons:
    """`==`, `<`, `in` and so on, and chains of them.

    >>> from torch_scenarios.expressions.functions import numpy_arrays
    >>> numpy_arrays().functions()["in"](2, [1, 2])
    True

    `0 <= rank < 2` is a chain: its middle is computed once.
    """

    def __init__(self, operators: Operators) -> None:
        """Share the operators' library, budget and host."""
        self._operators = operators
        self._host = None if operators.host is None else Comparisons(operators.host)

    def table(self) -> dict[str, Callable[..., Any]]:
        """Return the comparisons by the keys that compiled expressions call them by."""
        compared = {symbol: self._make_comparison(symbol) for symbol in COMPARISONS}
        compared |= {"in": self.contains, "not in": self.lacks}
        return {**compared, CHAIN: self._chain(compared)}

    def compare(self, symbol: str, first: Value, second: Value) -> Value:
        """Compare where at least one operand is no number: a bool, or a bool tensor."""
        is_array = self._operators.library.is_array
        if not is_array(first) and not is_array(second):
            self._operators.budget.charge_nested(first)
            self._operators.budget.charge_nested(second)
            return COMPARISONS[symbol](first, second)
        if (first is None or second is None) and symbol in {"==", "!="}:
            return symbol == "!="
        first, second = self._operators.operand(first), self._operators.operand(second)
        if self._host is not None and self._operators.leaves(first, second):
            lowered = (self._operators.lower(each) for each in (first, second))
            made = self._host.compare(symbol, *lowered)
            return self._operators.library.from_numpy(made)
        compute = self._comparable(symbol, first, second)
        self._operators.charge(first, second)
        made = COMPARISONS[symbol](
            self._operators.prepare(first, compute) if not is_number(first) else first,
            self._operators.prepare(second, compute) if not is_number(second) else second,
        )
        return self._operators.library.wrap(made)

    def _comparable(self, symbol: str, first: Value, second: Value) -> str:
        """Return the dtype in which operands are compared without loss."""
        dtype = self._operators.promote(first, second)
        if kind(dtype) == "complex" and symbol not in {"==", "!="}:
            message = "complex numbers have no order"
            raise TypeError(message)
        arrays = [each for each in (first, second) if not is_number(each)]
        if len(arrays) == 1 and is_exact(self._operators.library.name(arrays[0])):
            number = second if is_number(second) else first
            if number.__class__ is float or not _INT64[0] <= number.real <= _INT64[1]:
                return widest(dtype) if kind(dtype) == "complex" else "float64"
            return dtype if dtype in {"uint64", "complex64"} else "int64"
        return choose_dtypes(dtype)[1]

    def _make_comparison(self, symbol: str) -> Callable[[Any, Any], Any]:
        plain, numbers = COMPARISONS[symbol], NUMBERS

        def compare_plain(first: Value, second: Value) -> Value:
            if first.__class__ in numbers and second.__class__ in numbers:
                return plain(first, second)
            return self.compare(symbol, first, second)

        return compare_plain

    def contains(self, item: Value, within: Value) -> bool:
        """`item in within`: a list, a range, or the elements of a tensor."""
        if self._operators.library.is_array(within):
            return bool(self.compare("==", within, item).any())
        if not isinstance(within, list | tuple | range):
            message = "`in` looks into a list or a tensor"
            raise TypeError(message)
        self._operators.budget.operations(1 if isinstance(within, range) else len(within))
        if is_number(item) and (isinstance(within, range) or within.__class__ is list):
            return item in within
        return any(bool(self._equal(each, item)) for each in within)

    def _equal(self, first: Value, second: Value) -> Value:
        if is_number(first) and is_number(second):
            return first == second
        return self.compare("==", first, second)

    def lacks(self, item: Value, within: Value) -> bool:
        """`item not in within`."""
        return not self.contains(item, within)

    def _chain(self, compared: dict[str, Callable[[Any, Any], Any]]) -> Callable[..., Any]:
        def chain(symbols: tuple[str, ...], *values: Value) -> Value:
            result: Value = True
            for symbol, first, second in zip(symbols, values, values[1:], strict=False):
                result = compared[symbol](first, second)
                if not result:
                    break
            return result

        return chain


# -------------------------------------------------------------------------------------------------
# Arithmetic that goes straight to the library: where the rules leave nothing to prepare.
#
# Two tensors of one dtype and shape, or a tensor and a number of a kind that it takes in, mostly
# meet in the tensor's own dtype and are computed in it. Whether they do is asked of the rules once
# for each dtype and type of number; from then on only the budget is charged.
#
#     x + 1        float32 and int      torch computes in float32, and so does NumPy: straight
#     x + y        float32, one shape   straight
#     i + 1        int64 and int        straight; `i + 2**70` is not: no int64 has the number
#     i + 1.5      int64 and float      torch makes float32 of it, NumPy float64: by the rules
#     b + c        bfloat16             computed in float32 and rounded once: by the rules
#     x + y        shapes that differ   what they broadcast to is charged first: by the rules
#
# The rules (:mod:`torch_scenarios.expressions.arrays`, after torch's "Type promotion": a number
# takes part in it by its category alone, never by its width) are Python, and a step of a small
# program is little more than such operators. What goes straight does not state the rules a second
# time: `_bounds` asks the rules themselves whether the dtype stays and nothing is computed wider,
# and keeps the answer. It keeps a range and not a yes, because an integer may be too large for the
# dtype, for which torch raises.

#: the least and the greatest number that goes straight to the library; here no number does
_NONE = (1, 0)
_ANY = (-inf, inf)


class DirectRule:
    """One rule over one library, by the shortest way that means the same.

    The first `x + 1` of a dtype asks the rules, and notes for which numbers the answer holds; each
    one after it is a look-up, a charge and the library's own operator.
    """

    def __init__(self, operators: Operators, rule: Rule) -> None:
        """Know nothing yet of any dtype."""
        self._operators = operators
        self._rule = rule
        #: (dtype of a tensor, class of the other operand) -> the numbers that go straight
        self._known: dict[tuple[Any, type], tuple[float, float]] = {}

    def function(self) -> Callable[[Any, Any], Any]:
        """Return what compiled expressions call for the operator.

        Most calls are of two tensors of one dtype and shape, or of a tensor and a small number: for
        these what has to be known (which numbers fit the dtype) is looked up by dtype and kind of
        number, and the library's own operator is called at once. All else takes the general way,
        with the same result.
        """
        rule, operators, known = self._rule, self._operators, self._known
        library, budget, array = operators.library, operators.budget, operators.library.array
        scalar, apply, general = rule.scalar, rule.array, operators.arithmetic

        def compute(first: Value, second: Value) -> Value:
            one, other = first.__class__, second.__class__
            if one is array:
                tensor, number, key = first, second, (first.dtype, other)
                if other is array:
                    if first.dtype != second.dtype or first.shape != second.shape:
                        return general(rule, first, second)
                    number = 0
            elif other is array:
                tensor, number, key = second, first, (second.dtype, one)
            elif one in NUMBERS and other in NUMBERS:
                return scalar(first, second)
            else:
                return general(rule, first, second)
            bounds = known.get(key)
            if bounds is None:
                bounds = known[key] = self._bounds(tensor, key[1])
            if bounds is _NONE or not bounds[0] <= number <= bounds[1]:
                return general(rule, first, second)
            budget.charge_shape(tensor.shape)
            with library.quiet():
                made = apply(first, second)
            if made.dtype == key[0]:
                return library.wrap(made)
            return operators.finish(made, library.name(tensor))

        return compute

    def _bounds(self, tensor: Value, other: type) -> tuple[float, float]:
        """Return which numbers of a type, or whether tensors like it, a tensor meets as it is."""
        dtype = self._operators.library.name(tensor)
        if self._rule.check is not None or self._operators.leaves(tensor):
            return _NONE
        if other is self._operators.library.array:
            met = dtype
        elif other in NUMBERS and other is not complex:
            met = promote_by_number(dtype, other)
        else:
            return _NONE
        if met != dtype or self._rule.compute(dtype) != (dtype, dtype):
            return _NONE
        return integer_range(dtype) if is_exact(dtype) else _ANY


# -------------------------------------------------------------------------------------------------
# The guarded operators of the expression language, over either array library.
#
# Between Python numbers they are Python's own, with bounds on what can grow. With a tensor they
# are torch's, its dtype chosen by :mod:`torch_scenarios.expressions.arrays` and its size charged
# beforehand, so that both libraries give the same. A list of numbers where a tensor is wanted is
# data, float32.


class Operators:
    """The operators over one library. `host` are those over NumPy, for dtypes that torch lacks.

    >>> from torch_scenarios.expressions.functions import numpy_arrays
    >>> plus = numpy_arrays().functions()["+"]
    >>> plus(2, 3), plus([1], [2])
    (5, [1, 2])
    """

    def __init__(
        self, library: ArrayLibrary, budget: Budget, host: Operators | None = None
    ) -> None:
        """Keep what the operators work with."""
        self.library = library
        self.budget = budget
        self.host = host

    def table(self) -> dict[str, Callable[..., Any]]:
        """Return the operators by the keys that compiled expressions call them by."""
        arithmetic = {rule.symbol: DirectRule(self, rule).function() for rule in RULES}
        return {
            **arithmetic,
            "+": self._make_addition(arithmetic["+"]),
            "*": self._make_repetition(arithmetic["*"]),
            **Comparisons(self).table(),
            "u+": self.positive,
            "u-": self.negative,
            "~": self.invert,
            BEGIN: self.budget.begin,
        }

    # ------------------------------------------------------------------ operands

    def operand(self, value: Value) -> Value:
        """Return an array, or a number; a list of numbers as a float32 array."""
        if value.__class__ in NUMBERS:
            return value
        return self.tensor(value)

    def tensor(self, value: Value) -> Value:
        """Return an array: of numbers and lists of numbers, float32."""
        if self.library.is_array(value):
            return self.library.wrap(value)
        if value is None:
            message = "a name in it has no value on this rank"
            raise TypeError(message)
        if isinstance(value, list | tuple) and any(self.library.is_array(item) for item in value):
            message = (
                "a list of tensors cannot be used where one tensor is wanted; stack(list) makes one"
            )
            raise TypeError(message)
        if value.__class__ in NUMBERS or isinstance(value, list | tuple | range):
            data = make_array(value, "float32", self.budget.elements)
            self.budget.work(data.size)
            return self.library.from_numpy(data)
        shown = f"the word {value!r}" if isinstance(value, str) else f"{value!r}"
        message = f"{shown} cannot be used where a number or a tensor is wanted"
        raise TypeError(message)

    def promote(self, first: Value, second: Value) -> str:
        """Return the dtype in which two operands meet, at least one of them an array."""
        name = self.library.name
        if is_number(second):
            return promote_by_number(name(first), second.__class__)
        if is_number(first):
            return promote_by_number(name(second), first.__class__)
        return promote(name(first), name(second))

    def charge(self, first: Value, second: Value) -> None:
        """Charge the result of an elementwise operation; ValueError where shapes do not fit."""
        if is_number(first) or is_number(second):
            self.budget.charge_shape((second if is_number(first) else first).shape)
            return
        shapes = tuple(first.shape), tuple(second.shape)
        if shapes[0] == shapes[1]:
            self.budget.charge_shape(shapes[0])
            return
        try:
            shape = np.broadcast_shapes(*shapes)
        except ValueError:
            message = f"shapes {list(shapes[0])} and {list(shapes[1])} do not fit together"
            raise ValueError(message) from None
        self.budget.tensor(prod(shape))

    def leaves(self, *operands: Value) -> bool:
        """Return whether NumPy has to compute this, because torch lacks a dtype."""
        if self.host is None:
            return False
        library = self.library
        return any(
            library.must_leave(library.name(each)) for each in operands if not is_number(each)
        )

    def lower(self, value: Value) -> Value:
        """Return an operand for the operators over NumPy."""
        return self.library.to_numpy(value) if self.library.is_array(value) else value

    def prepare(self, value: Value, dtype: str) -> Value:
        """Return an operand in the dtype of the computation; a number must fit it."""
        if is_number(value):
            if is_exact(dtype):
                low, high = integer_range(dtype)
                if not low <= value <= high:
                    message = f"{value} does not fit {dtype}"
                    raise OverflowError(message)
            return value
        return value if self.library.name(value) == dtype else self.library.cast(value, dtype)

    def finish(self, made: Value, dtype: str) -> Value:
        """Return the result of a computation, in the dtype it shall have."""
        made = self.library.wrap(made)
        return made if self.library.name(made) == dtype else self.library.cast(made, dtype)

    # ------------------------------------------------------------------ arithmetic

    def arithmetic(self, rule: Rule, first: Value, second: Value) -> Value:
        """Apply a rule where at least one operand is a tensor, or stands for one."""
        first, second = self.operand(first), self.operand(second)
        dtype = self.promote(first, second)
        if self.host is not None and self.leaves(first, second):
            made = self.host.arithmetic(rule, self.lower(first), self.lower(second))
            return self.library.from_numpy(made)
        result, compute = rule.compute(dtype)
        self.charge(first, second)
        first, second = self.prepare(first, compute), self.prepare(second, compute)
        if rule.check is not None:
            rule.check(first, second, compute)
        with self.library.quiet():
            made = rule.array(first, second)
        return self.finish(made, result)

    def _make_addition(self, plain: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        sequences = (list, range)

        def add(first: Value, second: Value) -> Value:
            if isinstance(first, sequences) and isinstance(second, sequences):
                self.budget.charge_items(len(first) + len(second))
                return [*first, *second]
            return plain(first, second)

        return add

    def _make_repetition(self, plain: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def repeat(first: Value, second: Value) -> Value:
            for items, times in ((first, second), (second, first)):
                if items.__class__ is list and times.__class__ is int:
                    self.budget.charge_items(
                        max(times, 0) * (len(items) + self.budget.charge_nested(items))
                    )
                    return items * times
            return plain(first, second)

        return repeat

    def positive(self, value: Value) -> Value:
        """`+x`: a copy."""
        value = self.operand(value)
        if is_number(value):
            return +value
        self.budget.charge_shape(value.shape)
        return self.library.copy(value)

    def negative(self, value: Value) -> Value:
        """`-x`: unsigned integers wrap; TypeError for bool."""
        value = self.operand(value)
        if is_number(value):
            return -value
        if self.host is not None and self.leaves(value):
            return self.library.from_numpy(self.host.negative(self.lower(value)))
        dtype = self.library.name(value)
        if dtype == "bool":
            message = "bool has no sign; use `~`"
            raise TypeError(message)
        self.budget.charge_shape(value.shape)
        with self.library.quiet():
            return self.finish(-value, dtype)

    def invert(self, value: Value) -> Value:
        """`~x` of integers or bool."""
        value = self.operand(value)
        if value.__class__ is int:
            return ~value
        if is_number(value) or not is_exact(self.library.name(value)):
            message = "`~` takes integers and bool tensors; of a condition write `not`"
            raise TypeError(message)
        if self.host is not None and self.leaves(value):
            return self.library.from_numpy(self.host.invert(self.lower(value)))
        self.budget.charge_shape(value.shape)
        return self.library.wrap(~value)
