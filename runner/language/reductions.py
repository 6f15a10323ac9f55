"""sum, prod, min, max, mean and matmul over one library.

Of a tensor they reduce the elements; of a list of tensors they combine them element by element; of
numbers they are Python's own. Floats are accumulated in float64 (complex128) and rounded once,
because the reference of a collective is: `sum([before(x, r) for r in group_ranks(g)])` is exactly
what an all_reduce must give. Integers of one tensor are summed in 64 bits, as the array API
standard says; lists keep their dtype, and wrap.
"""

from __future__ import annotations

import operator
from functools import reduce
from math import prod
from typing import TYPE_CHECKING, Any

from runner.language.arithmetic import RULES, Rule, bounded, is_number
from runner.language.constructors import axes, dtype_name
from runner.language.promotion import is_exact, kind, promoted, widest

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.language.arithmetic import Value
    from runner.language.operators import Operators

_RULES = {rule.symbol: rule for rule in RULES}

#: the operators that store into their first operand
_INTO: dict[str, Callable[[Value, Value], Value]] = {"+": operator.iadd, "*": operator.imul}


class Reductions:
    """The functions that make less of more."""

    def __init__(
        self, operators: Operators, minimum: Callable[..., Any], maximum: Callable[..., Any]
    ) -> None:
        """Share the operators' library and budget; lists are combined by the functions given."""
        self._operators = operators
        self._library = operators.library
        self._budget = operators.budget
        self._minimum = minimum
        self._maximum = maximum

    def table(self) -> dict[str, Callable[..., Any]]:
        """Return the functions by name."""
        return {
            "sum": self.sum,
            "prod": self.prod,
            "min": self.min,
            "max": self.max,
            "mean": self.mean,
            "matmul": self.matmul,
        }

    def sum(
        self, x: Value, axis: Value = None, keepdims: Value = None, dtype: Value = None
    ) -> Value:
        """Add up."""
        if isinstance(x, list | tuple | range):
            return self._combined("+", x, 0, axis)
        return self._accumulated("sum", x, axis, keepdims, dtype)

    def prod(
        self, x: Value, axis: Value = None, keepdims: Value = None, dtype: Value = None
    ) -> Value:
        """Multiply together."""
        if isinstance(x, list | tuple | range):
            return self._combined("*", x, 1, axis)
        return self._accumulated("prod", x, axis, keepdims, dtype)

    def min(self, x: Value, *more: Value, axis: Value = None, keepdims: Value = None) -> Value:
        """Return the least element, number, or the elementwise least of a list of tensors."""
        return self._extreme("min", self._minimum, x, more, axis, keepdims)

    def max(self, x: Value, *more: Value, axis: Value = None, keepdims: Value = None) -> Value:
        """Return the greatest element, number, or the elementwise greatest of a list of tensors."""
        return self._extreme("max", self._maximum, x, more, axis, keepdims)

    def mean(self, x: Value, axis: Value = None, keepdims: Value = None) -> Value:
        """Return the arithmetic mean; of integers as float32."""
        if isinstance(x, list | tuple | range):
            total = self._combined("+", x, 0, axis)
            if is_number(total):
                return total / len(x)
            return self._operators.arithmetic(_RULES["/"], total, len(x))
        array = self._operators.tensor(x)
        dtype = self._library.name(array)
        result = "float32" if is_exact(dtype) else dtype
        chosen = axes(axis)
        self._budget.shaped(array.shape)
        wide = self._operators.prepared(array, widest(result))
        with self._library.quiet():
            made = self._library.xp.sum(wide, axis=chosen, keepdims=bool(keepdims))
            count = prod(array.shape) // max(prod(made.shape), 1)
            return self._operators.finished(self._library.wrapped(made) / count, result)

    # ------------------------------------------------------------------ of lists

    def _combined(self, symbol: str, items: Value, empty: int, axis: Value) -> Value:
        """Combine a list: numbers as numbers, tensors element by element in their own dtype."""
        if axis is not None:
            message = "a list has no axes; stack(list) makes one tensor of it"
            raise TypeError(message)
        self._budget.operations(len(items))
        if all(is_number(item) for item in items):
            rule = _RULES[symbol]
            return reduce(lambda first, second: bounded(rule.scalar(first, second)), items, empty)
        operands = [self._operators.operand(item) for item in items]
        names = [self._library.name(each) for each in operands if not is_number(each)]
        result = reduce(promoted, names)
        total = operands[0]
        total = +total if is_number(total) else self._library.cast(total, widest(result))
        for each in operands[1:]:
            total = self._folded(_RULES[symbol], total, each)
        return self._operators.finished(total, result)

    def _folded(self, rule: Rule, total: Value, each: Value) -> Value:
        """Return `total`, which is nobody else's, combined with one more operand."""
        if is_number(total) and is_number(each):
            return rule.scalar(total, each)
        if is_number(total) or is_number(each) or total.shape != each.shape:
            return self._operators.arithmetic(rule, total, each)
        self._budget.shaped(each.shape)
        if is_exact(self._library.name(total)):
            each = self._operators.prepared(each, self._library.name(total))
        with self._library.quiet():
            return _INTO[rule.symbol](total, each)

    def _extreme(
        self,
        name: str,
        combine: Callable[..., Any],
        x: Value,
        more: tuple[Any, ...],
        axis: Value,
        keepdims: Value,
    ) -> Value:
        if more and not is_number(x):
            message = f"{name} takes one tensor or list, or numbers; of tensors: {name}imum(x, y)"
            raise TypeError(message)
        items = [x, *more] if more else x
        if isinstance(items, list | tuple | range):
            if not items:
                message = f"{name} of an empty list"
                raise ValueError(message)
            if axis is not None:
                message = "a list has no axes; stack(list) makes one tensor of it"
                raise TypeError(message)
            self._budget.operations(len(items))
            if all(item.__class__ in {int, float, bool} for item in items):
                return (min if name == "min" else max)(items)
            return reduce(combine, items[1:], self._operators.positive(items[0]))
        array = self._operators.tensor(x)
        dtype = self._library.name(array)
        if kind(dtype) == "complex":
            message = "complex numbers have no order"
            raise TypeError(message)
        self._budget.shaped(array.shape)
        wide = self._operators.prepared(array, widest(dtype))
        function = getattr(self._library.xp, name)
        with self._library.quiet():
            made = function(wide, axis=axes(axis), keepdims=bool(keepdims))
        return self._operators.finished(made, dtype)

    # ------------------------------------------------------------------ of one tensor

    def _accumulated(
        self,
        name: str,
        x: Value,
        axis: Value,
        keepdims: Value,
        dtype: Value,
    ) -> Value:
        array = self._operators.tensor(x)
        held = self._library.name(array)
        if dtype is not None:
            result = dtype_name(dtype)
        elif is_exact(held):
            result = "uint64" if held.startswith("u") else "int64"
        else:
            result = held
        self._budget.shaped(array.shape)
        compute = "int64" if is_exact(result) and is_exact(held) else widest(held)
        wide = self._operators.prepared(array, compute)
        with self._library.quiet():
            made = getattr(self._library.xp, name)(wide, axis=axes(axis), keepdims=bool(keepdims))
        return self._operators.finished(made, result)

    def matmul(self, x1: Value, x2: Value) -> Value:
        """Return the matrix product; floats are computed in float64."""
        first, second = self._operators.tensor(x1), self._operators.tensor(x2)
        dtype = self._operators.meeting(first, second)
        if dtype == "bool":
            message = "matmul takes numbers, not bool"
            raise TypeError(message)
        shapes = list(first.shape), list(second.shape)
        if not all(shapes) or shapes[0][-1] != shapes[1][-2 if len(shapes[1]) > 1 else 0]:
            message = f"matrices of shapes {shapes[0]} and {shapes[1]} have no product"
            raise ValueError(message)
        columns = shapes[1][-1] if len(shapes[1]) > 1 else 1
        batches = max(prod(shapes[0][:-2]), 1) * max(prod(shapes[1][:-2]), 1)
        rows = shapes[0][-2] if len(shapes[0]) > 1 else 1
        self._budget.work(prod(shapes[0]) + prod(shapes[1]))
        products = batches * rows * columns * shapes[0][-1]
        if is_exact(dtype):
            self._budget.work(products)  # no library of linear algebra has integers
        else:
            self._budget.matmul(products)
        self._budget.tensor(batches * rows * columns)
        compute = "int64" if is_exact(dtype) else widest(dtype)
        operands = (self._operators.prepared(each, compute) for each in (first, second))
        with self._library.quiet():
            made = self._library.xp.matmul(*operands)
        return self._operators.finished(made, dtype)
