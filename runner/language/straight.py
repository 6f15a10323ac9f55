"""Arithmetic that goes straight to the library: where the rules leave nothing to prepare.

Two tensors of one dtype and shape, or a tensor and a number of a kind that it takes in, mostly meet
in the tensor's own dtype and are computed in it. Whether they do is asked of the rules once for
each dtype and type of number; from then on only the budget is charged.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from runner.language.arithmetic import NUMBERS
from runner.language.promotion import integer_range, is_exact, promoted_by_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.language.arithmetic import Rule, Value
    from runner.language.operators import Operators

#: the least and the greatest number that goes straight to the library; here no number does
_NONE = (1, 0)
_ANY = (-inf, inf)


class Straight:
    """One rule over one library, by the shortest way that means the same."""

    def __init__(self, operators: Operators, rule: Rule) -> None:
        """Know nothing yet of any dtype."""
        self._operators = operators
        self._rule = rule
        #: (dtype of a tensor, class of the other operand) -> the numbers that go straight
        self._known: dict[tuple[Any, type], tuple[float, float]] = {}

    def function(self) -> Callable[[Any, Any], Any]:
        """Return what compiled expressions call for the operator."""
        rule, operators, known = self._rule, self._operators, self._known
        library, budget, array = operators.library, operators.budget, operators.library.array
        scalar, apply, general = rule.scalar, rule.array, operators.arithmetic

        def applied(first: Value, second: Value) -> Value:
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
            budget.shaped(tensor.shape)
            with library.quiet():
                made = apply(first, second)
            if made.dtype == key[0]:
                return library.wrapped(made)
            return operators.finished(made, library.name(tensor))

        return applied

    def _bounds(self, tensor: Value, other: type) -> tuple[float, float]:
        """Return which numbers of a type, or whether tensors like it, a tensor meets as it is."""
        dtype = self._operators.library.name(tensor)
        if self._rule.check is not None or self._operators.leaves(tensor):
            return _NONE
        if other is self._operators.library.array:
            met = dtype
        elif other in NUMBERS and other is not complex:
            met = promoted_by_number(dtype, other)
        else:
            return _NONE
        if met != dtype or self._rule.compute(dtype) != (dtype, dtype):
            return _NONE
        return integer_range(dtype) if is_exact(dtype) else _ANY
