"""Comparisons of the expression language, over either array library.

Between Python numbers and lists they are Python's own; a tensor is compared element by element, in
a dtype that loses nothing of either side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.language.arithmetic import COMPARISONS, NUMBERS, is_number, rounded
from runner.language.guarded import CHAIN
from runner.language.promotion import integer_range, is_exact, kind, widest

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.language.arithmetic import Value
    from runner.language.operators import Operators

_INT64 = integer_range("int64")


class Comparing:
    """`==`, `<`, `in` and so on, and chains of them."""

    def __init__(self, operators: Operators) -> None:
        """Share the operators' library, budget and host."""
        self._operators = operators
        self._host = None if operators.host is None else Comparing(operators.host)

    def table(self) -> dict[str, Callable[..., Any]]:
        """Return the comparisons by the keys that compiled expressions call them by."""
        compared = {symbol: self._compared(symbol) for symbol in COMPARISONS}
        compared |= {"in": self.contains, "not in": self.lacks}
        return {**compared, CHAIN: self._chain(compared)}

    def compare(self, symbol: str, first: Value, second: Value) -> Value:
        """Compare where at least one operand is no number: a bool, or a bool tensor."""
        is_array = self._operators.library.is_array
        if not is_array(first) and not is_array(second):
            self._operators.budget.nested(first)
            self._operators.budget.nested(second)
            return COMPARISONS[symbol](first, second)
        if (first is None or second is None) and symbol in {"==", "!="}:
            return symbol == "!="
        first, second = self._operators.operand(first), self._operators.operand(second)
        if self._host is not None and self._operators.leaves(first, second):
            lowered = (self._operators.lowered(each) for each in (first, second))
            made = self._host.compare(symbol, *lowered)
            return self._operators.library.from_numpy(made)
        compute = self._comparable(symbol, first, second)
        self._operators.charge(first, second)
        made = COMPARISONS[symbol](
            self._operators.prepared(first, compute) if not is_number(first) else first,
            self._operators.prepared(second, compute) if not is_number(second) else second,
        )
        return self._operators.library.wrapped(made)

    def _comparable(self, symbol: str, first: Value, second: Value) -> str:
        """Return the dtype in which operands are compared without loss."""
        dtype = self._operators.meeting(first, second)
        if kind(dtype) == "complex" and symbol not in {"==", "!="}:
            message = "complex numbers have no order"
            raise TypeError(message)
        arrays = [each for each in (first, second) if not is_number(each)]
        if len(arrays) == 1 and is_exact(self._operators.library.name(arrays[0])):
            number = second if is_number(second) else first
            if number.__class__ is float or not _INT64[0] <= number.real <= _INT64[1]:
                return widest(dtype) if kind(dtype) == "complex" else "float64"
            return dtype if dtype in {"uint64", "complex64"} else "int64"
        return rounded(dtype)[1]

    def _compared(self, symbol: str) -> Callable[[Any, Any], Any]:
        plain, numbers = COMPARISONS[symbol], NUMBERS

        def compared(first: Value, second: Value) -> Value:
            if first.__class__ in numbers and second.__class__ in numbers:
                return plain(first, second)
            return self.compare(symbol, first, second)

        return compared

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
