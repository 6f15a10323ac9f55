"""The guarded operators of the expression language, over either array library.

Between Python numbers they are Python's own, with bounds on what can grow. With a tensor they are
torch's, its dtype chosen by :mod:`runner.language.promotion` and its size charged beforehand, so
that both libraries give the same. A list of numbers where a tensor is wanted is data, float32.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.language.arithmetic import NUMBERS, RULES, Rule, is_number
from runner.language.comparing import Comparing
from runner.language.guarded import BEGIN
from runner.language.literals import from_data
from runner.language.promotion import (
    integer_range,
    is_exact,
    promoted,
    promoted_by_number,
)
from runner.language.straight import Straight

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.language.arithmetic import Value
    from runner.language.budget import Budget
    from runner.language.libraries import Library

_INT64 = integer_range("int64")


class Operators:
    """The operators over one library. `host` are those over NumPy, for dtypes that torch lacks."""

    def __init__(self, library: Library, budget: Budget, host: Operators | None = None) -> None:
        """Keep what the operators work with."""
        self.library = library
        self.budget = budget
        self.host = host

    def table(self) -> dict[str, Callable[..., Any]]:
        """Return the operators by the keys that compiled expressions call them by."""
        arithmetic = {rule.symbol: Straight(self, rule).function() for rule in RULES}
        return {
            **arithmetic,
            "+": self._added(arithmetic["+"]),
            "*": self._repeated(arithmetic["*"]),
            **Comparing(self).table(),
            "u+": self.positive,
            "u-": self.negative,
            "~": self.inverted,
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
            return self.library.wrapped(value)
        if value is None:
            message = "a name in it has no value on this rank"
            raise TypeError(message)
        if isinstance(value, list | tuple) and any(self.library.is_array(item) for item in value):
            message = "a list of tensors stands where one tensor is wanted; stack(list) makes one"
            raise TypeError(message)
        if value.__class__ in NUMBERS or isinstance(value, list | tuple | range):
            data = from_data(value, "float32", self.budget.elements)
            self.budget.work(data.size)
            return self.library.from_numpy(data)
        shown = f"the word {value!r}" if isinstance(value, str) else f"{value!r}"
        message = f"{shown} stands where a number or a tensor is wanted"
        raise TypeError(message)

    def meeting(self, first: Value, second: Value) -> str:
        """Return the dtype in which two operands meet, at least one of them an array."""
        name = self.library.name
        if is_number(second):
            return promoted_by_number(name(first), second.__class__)
        if is_number(first):
            return promoted_by_number(name(second), first.__class__)
        return promoted(name(first), name(second))

    def charge(self, first: Value, second: Value) -> None:
        """Charge the result of an elementwise operation; ValueError where shapes do not fit."""
        if is_number(first) or is_number(second):
            self.budget.shaped((second if is_number(first) else first).shape)
            return
        shapes = tuple(first.shape), tuple(second.shape)
        if shapes[0] == shapes[1]:
            self.budget.shaped(shapes[0])
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

    def lowered(self, value: Value) -> Value:
        """Return an operand for the operators over NumPy."""
        return self.library.to_numpy(value) if self.library.is_array(value) else value

    def prepared(self, value: Value, dtype: str) -> Value:
        """Return an operand in the dtype of the computation; a number must fit it."""
        if is_number(value):
            if is_exact(dtype):
                low, high = integer_range(dtype)
                if not low <= value <= high:
                    message = f"{value} does not fit {dtype}"
                    raise OverflowError(message)
            return value
        return value if self.library.name(value) == dtype else self.library.cast(value, dtype)

    def finished(self, made: Value, dtype: str) -> Value:
        """Return the result of a computation, in the dtype it shall have."""
        made = self.library.wrapped(made)
        return made if self.library.name(made) == dtype else self.library.cast(made, dtype)

    # ------------------------------------------------------------------ arithmetic

    def arithmetic(self, rule: Rule, first: Value, second: Value) -> Value:
        """Apply a rule where at least one operand is a tensor, or stands for one."""
        first, second = self.operand(first), self.operand(second)
        dtype = self.meeting(first, second)
        if self.host is not None and self.leaves(first, second):
            made = self.host.arithmetic(rule, self.lowered(first), self.lowered(second))
            return self.library.from_numpy(made)
        result, compute = rule.compute(dtype)
        self.charge(first, second)
        first, second = self.prepared(first, compute), self.prepared(second, compute)
        if rule.check is not None:
            rule.check(first, second, compute)
        with self.library.quiet():
            made = rule.array(first, second)
        return self.finished(made, result)

    def _added(self, plain: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        sequences = (list, range)

        def added(first: Value, second: Value) -> Value:
            if isinstance(first, sequences) and isinstance(second, sequences):
                self.budget.listed(len(first) + len(second))
                return [*first, *second]
            return plain(first, second)

        return added

    def _repeated(self, plain: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def repeated(first: Value, second: Value) -> Value:
            for items, times in ((first, second), (second, first)):
                if items.__class__ is list and times.__class__ is int:
                    self.budget.listed(max(times, 0) * (len(items) + self.budget.nested(items)))
                    return items * times
            return plain(first, second)

        return repeated

    def positive(self, value: Value) -> Value:
        """`+x`: a copy."""
        value = self.operand(value)
        if is_number(value):
            return +value
        self.budget.shaped(value.shape)
        return self.library.copy(value)

    def negative(self, value: Value) -> Value:
        """`-x`: unsigned integers wrap; TypeError for bool."""
        value = self.operand(value)
        if is_number(value):
            return -value
        if self.host is not None and self.leaves(value):
            return self.library.from_numpy(self.host.negative(self.lowered(value)))
        dtype = self.library.name(value)
        if dtype == "bool":
            message = "bool has no sign; use `~`"
            raise TypeError(message)
        self.budget.shaped(value.shape)
        with self.library.quiet():
            return self.finished(-value, dtype)

    def inverted(self, value: Value) -> Value:
        """`~x` of integers or bool."""
        value = self.operand(value)
        if value.__class__ is int:
            return ~value
        if is_number(value) or not is_exact(self.library.name(value)):
            message = "`~` takes integers and bool tensors; of a condition write `not`"
            raise TypeError(message)
        if self.host is not None and self.leaves(value):
            return self.library.from_numpy(self.host.inverted(self.lowered(value)))
        self.budget.shaped(value.shape)
        return self.library.wrapped(~value)
