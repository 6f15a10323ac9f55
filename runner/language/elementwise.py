"""Elementwise functions over one library.

What rounds is computed in float64 (complex128) and rounded once to the dtype, so that both
libraries give the same. Of plain numbers the result is a plain number.
"""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.language.arithmetic import is_number, rounded
from runner.language.constructors import dtype_name
from runner.language.literals import from_data
from runner.language.promotion import is_exact, kind, widest

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.language.arithmetic import Value
    from runner.language.operators import Operators

#: the dtype of a complex number's size
_PARTS = {"complex64": "float32", "complex128": "float64"}


_CHOICES: dict[str, Callable[[Value, Value], Value]] = {"minimum": min, "maximum": max}


class Elementwise:
    """exp, log, sqrt, abs, minimum, maximum, where, astype."""

    def __init__(self, operators: Operators) -> None:
        """Share the operators' library and budget."""
        self._operators = operators
        self._library = operators.library
        self._budget = operators.budget

    def table(self) -> dict[str, Callable[..., Any]]:
        """Return the functions by name."""
        return {
            "exp": self._rounding("exp"),
            "log": self._rounding("log"),
            "sqrt": self._rounding("sqrt"),
            "abs": self.absolute,
            "minimum": self._ordering("minimum"),
            "maximum": self._ordering("maximum"),
            "where": self.where,
            "astype": self.astype,
        }

    def _rounding(self, name: str) -> Callable[[Any], Any]:
        function, of_numbers = getattr(self._library.xp, name), getattr(np, name)

        def rounding(x: Value) -> Value:
            x = self._operators.operand(x)
            if is_number(x):
                with np.errstate(all="ignore"):
                    return of_numbers(complex(x) if isinstance(x, complex) else float(x)).item()
            dtype = self._library.name(x)
            result = "float32" if is_exact(dtype) else dtype
            self._budget.shaped(x.shape)
            with self._library.quiet():
                made = function(self._operators.prepared(x, widest(result)))
            return self._operators.finished(made, result)

        return rounding

    def absolute(self, x: Value) -> Value:
        """`abs(x)`: of complex numbers their size."""
        x = self._operators.operand(x)
        if is_number(x):
            return abs(x)
        dtype = self._library.name(x)
        self._budget.shaped(x.shape)
        if dtype == "bool":
            return self._library.copy(x)
        compute = rounded(dtype)[1]
        with self._library.quiet():
            made = self._library.xp.abs(self._operators.prepared(x, compute))
        return self._operators.finished(made, _PARTS.get(dtype, dtype))

    def _ordering(self, name: str) -> Callable[[Any, Any], Any]:
        function, choose = getattr(self._library.xp, name), _CHOICES[name]

        def ordering(x1: Value, x2: Value) -> Value:
            first, second = self._operators.operand(x1), self._operators.operand(x2)
            if is_number(first) and is_number(second):
                nan = [each for each in (first, second) if isinstance(each, float) and isnan(each)]
                return nan[0] if nan else choose(first, second)
            dtype = self._operators.meeting(first, second)
            if kind(dtype) == "complex":
                message = "complex numbers have no order"
                raise TypeError(message)
            self._operators.charge(first, second)
            compute = rounded(dtype)[1]
            return self._operators.finished(
                function(self._array(first, compute), self._array(second, compute)), dtype
            )

        return ordering

    def where(self, condition: Value, x1: Value, x2: Value) -> Value:
        """Where the condition is true (not zero) the element of x1, elsewhere of x2."""
        condition, first, second = (self._operators.operand(each) for each in (condition, x1, x2))
        if is_number(condition) and is_number(first) and is_number(second):
            return first if condition else second
        if is_number(first) and is_number(second):
            first = self._operators.tensor(complex(first) if _is_complex(second) else first)
        dtype = self._operators.meeting(first, second)
        chosen = self._array(condition, "bool")
        self._operators.charge(first, second)
        for each in (first, second):
            self._operators.charge(chosen, each)
        made = self._library.xp.where(chosen, self._array(first, dtype), self._array(second, dtype))
        return self._operators.finished(made, dtype)

    def astype(self, x: Value, dtype: Value) -> Value:
        """Return a copy in another dtype; integers wrap, floats are cut off towards zero."""
        array = self._operators.tensor(x)
        self._budget.shaped(array.shape)
        return self._library.cast(array, dtype_name(dtype))

    def _array(self, value: Value, dtype: str) -> Value:
        """Return an operand as an array of that dtype."""
        if is_number(value):
            return self._library.from_numpy(from_data(value, dtype, self._budget.elements))
        return self._operators.prepared(value, dtype)


def _is_complex(value: Value) -> bool:
    return isinstance(value, complex)
