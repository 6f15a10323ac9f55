"""Parts of values over one library: indexing, slicing, and what a comprehension goes over.

A part of a tensor by integers and slices is a view: what is stored into it, the tensor holds. One
by a list or a mask is a copy.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.language.arithmetic import is_number
from runner.language.constructors import integer
from runner.language.guarded import EACH, INDEX, SLICE
from runner.language.promotion import kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.language.arithmetic import Value
    from runner.language.operators import Operators

#: what has items and is no tensor
SEQUENCES = (list, tuple, range)


class Parts:
    """The functions that take a value apart."""

    def __init__(self, operators: Operators) -> None:
        """Share the operators' library and budget."""
        self._operators = operators
        self._library = operators.library
        self._budget = operators.budget

    def table(self) -> dict[str, Callable[..., Any]]:
        """Return them by the keys that compiled expressions call them by."""
        return {INDEX: self.part, SLICE: slice, EACH: self.each}

    def part(self, value: Value, index: Value) -> Value:
        """`value[index]`: a view of a tensor, an item or a part of a list."""
        if index.__class__ is int and self._library.is_array(value):
            return self._library.view(value, (index,))
        if isinstance(value, SEQUENCES):
            if isinstance(index, slice):
                made = value[index]
                self._budget.listed(len(made))
                return made
            return value[index if index.__class__ is bool else integer(index, "an index")]
        if isinstance(value, dict):
            return value[index]
        if not self._library.is_array(value):
            message = f"{described(value)} has no parts"
            raise TypeError(message)
        if isinstance(index, (list, range)) or self._library.is_array(index):
            return self._taken(value, index)
        return self._library.view(value, self._index(index))

    def _index(self, index: Value) -> tuple[Any, ...]:
        parts = index if isinstance(index, tuple) else (index,)
        return tuple(self._index_part(each) for each in parts)

    @staticmethod
    def _index_part(part: Value) -> Value:
        if part is None or part.__class__ is int:
            return part
        if part.__class__ is slice:
            bounds = (part.start, part.stop, part.step)
            if part.step is None and all(each is None or each.__class__ is int for each in bounds):
                return part
            if part.step is not None and integer(part.step, "the step of a slice") < 1:
                message = "a tensor is sliced forwards only; flip(x) turns it round"
                raise ValueError(message)
            return slice(*(_bound(each) for each in bounds))
        return integer(part, "an index")

    def _taken(self, value: Value, index: Value) -> Value:
        """Return a copy of the elements that integers, or a mask, choose along dimension 0."""
        if not self._library.is_array(index):
            picked = [integer(each, "an index") for each in index]
            index = self._library.from_numpy(np.asarray(picked, dtype=np.int64))
        name = self._library.name(index)
        if kind(name) == "int" and not index.shape:
            return self._library.view(value, (int(index.item()),))
        if kind(name) not in {"int", "bool"}:
            message = f"an index is an integer or a mask, not {name}; use int(x) or astype"
            raise TypeError(message)
        rows = prod(value.shape[1:])
        self._budget.tensor(prod(index.shape) * rows if name != "bool" else prod(value.shape))
        return value[self._operators.prepared(index, "bool" if name == "bool" else "int64")]

    def each(self, iterable: Value, weight: int, unpacks: bool) -> Value:  # noqa: FBT001 -- called by compiled code
        """Return what a comprehension goes over, charged; a tensor by its first dimension."""
        if self._library.is_array(iterable):
            if not iterable.shape:
                message = "a tensor without dimensions has no items"
                raise TypeError(message)
            self._charge(iterable.shape[0], weight)
            view = self._library.view
            iterable = [view(iterable, (at,)) for at in range(iterable.shape[0])]
        elif isinstance(iterable, SEQUENCES):
            self._charge(len(iterable), weight)
        else:
            message = f"{described(iterable)} has no items"
            raise TypeError(message)
        return [self.each(item, 1, unpacks=False) for item in iterable] if unpacks else iterable

    def _charge(self, count: int, weight: int) -> None:
        self._budget.listed(count)
        self._budget.operations(count * weight)


def _bound(value: Value) -> int | None:
    return None if value is None else integer(value, "the bound of a slice")


def described(value: Value) -> str:
    """Return what a value is, as the subject of a complaint."""
    if value is None:
        return "a name with no value on this rank"
    if is_number(value):
        return f"the number {value}"
    if getattr(value, "shape", None) == ():
        return "a tensor without dimensions"
    if isinstance(value, str):
        return f"the word {value!r}"
    return f"{type(value).__name__} {value!r}"
