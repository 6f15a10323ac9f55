"""Shapes, parts and conversions over one library.

Indexing, `reshape` (where the strides allow it) and `permute_dims` give views: what is stored into
them, the tensor holds. Everything else copies.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.language.arithmetic import is_number
from runner.language.constructors import axes, integer, number_in, real_in
from runner.language.guarded import EACH, INDEX, SLICE
from runner.language.promotion import kind, promoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.language.arithmetic import Value
    from runner.language.operators import Operators

_SEQUENCES = (list, tuple, range)


class Shaping:
    """The functions on shapes and parts."""

    def __init__(self, operators: Operators) -> None:
        """Share the operators' library and budget."""
        self._operators = operators
        self._library = operators.library
        self._budget = operators.budget

    def views(self) -> dict[str, Callable[..., Any]]:
        """Return what shares memory, or looks at no element: it works in every dtype."""
        return {
            INDEX: self.part,
            SLICE: slice,
            EACH: self.each,
            "reshape()": self.reshape,
            "permute_dims()": self.permute_dims,
            "len()": self.len,
            "range()": self.range,
            "shape()": self.shape,
            "numel()": self.numel,
            "int()": self.int,
            "float()": self.float,
            "bool()": self.bool,
        }

    def table(self) -> dict[str, Callable[..., Any]]:
        """Return the functions that copy, by name."""
        return {
            "concat": self.concat,
            "stack": self.stack,
            "flip": self.flip,
            "roll": self.roll,
        }

    # ------------------------------------------------------------------ parts

    def part(self, value: Value, index: Value) -> Value:
        """`value[index]`: a view of a tensor, an item or a part of a list."""
        if index.__class__ is int and self._library.is_array(value):
            return self._library.view(value, (index,))
        if isinstance(value, _SEQUENCES):
            if isinstance(index, slice):
                made = value[index]
                self._budget.listed(len(made))
                return made
            return value[index if index.__class__ is bool else integer(index, "an index")]
        if isinstance(value, dict):
            return value[index]
        if not self._library.is_array(value):
            message = f"{_described(value)} has no parts"
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
        elif isinstance(iterable, _SEQUENCES):
            self._charge(len(iterable), weight)
        else:
            message = f"{_described(iterable)} has no items"
            raise TypeError(message)
        return [self.each(item, 1, unpacks=False) for item in iterable] if unpacks else iterable

    def _charge(self, count: int, weight: int) -> None:
        self._budget.listed(count)
        self._budget.operations(count * weight)

    # ------------------------------------------------------------------ shapes

    def reshape(self, x: Value, shape: Value) -> Value:
        """Return the elements in another shape: a view where the strides allow it."""
        array = self._operators.tensor(x)
        parts = shape if isinstance(shape, _SEQUENCES) else [shape]
        sizes = tuple(integer(each, "a size") for each in parts)
        self._budget.shaped(array.shape)
        known = prod(each for each in sizes if each != -1)
        count = prod(array.shape)
        if sizes.count(-1) > 1 or min(sizes, default=0) < -1 or not _fills(count, known, sizes):
            message = f"{count} elements do not fill the shape {list(sizes)}"
            raise ValueError(message)
        return self._library.xp.reshape(array, sizes)

    def permute_dims(self, x: Value, axes: Value) -> Value:
        """Return a view with its dimensions in another order."""
        array = self._operators.tensor(x)
        order = tuple(integer(each, "an axis") for each in axes)
        return self._library.xp.permute_dims(array, order)

    def concat(self, arrays: Value, axis: Value = 0) -> Value:
        """Join tensors along a dimension they have."""
        return self._joined("concat", arrays, axis)

    def stack(self, arrays: Value, axis: Value = 0) -> Value:
        """Join tensors of one shape along a new dimension."""
        return self._joined("stack", arrays, axis)

    def _joined(self, name: str, arrays: Value, axis: Value) -> Value:
        if self._library.is_array(arrays) and arrays.shape:
            arrays = self.each(arrays, 1, unpacks=False)
        if not isinstance(arrays, _SEQUENCES) or not arrays:
            message = f"{name} takes a list of tensors, and at least one"
            raise TypeError(message)
        parts = [self._operators.tensor(each) for each in arrays]
        self._budget.tensor(sum(prod(each.shape) for each in parts))
        dtype = self._library.name(parts[0])
        for each in parts[1:]:
            dtype = promoted(dtype, self._library.name(each))
        cast = [self._operators.prepared(each, dtype) for each in parts]
        function = getattr(self._library.xp, name)
        if axis is None and name == "concat":
            return function([self._library.xp.reshape(each, (-1,)) for each in cast], axis=0)
        return function(cast, axis=integer(axis, "an axis"))

    def flip(self, x: Value, axis: Value = None) -> Value:
        """Return a copy with the elements in reverse, along every dimension or those given."""
        array = self._operators.tensor(x)
        self._budget.shaped(array.shape)
        return self._library.copy(self._library.xp.flip(array, axis=axes(axis)))

    def roll(self, x: Value, shift: Value, axis: Value = None) -> Value:
        """Return a copy whose elements moved on by `shift`, the last ones coming in first."""
        array = self._operators.tensor(x)
        self._budget.shaped(array.shape)
        return self._library.xp.roll(array, axes(shift), axis=axes(axis))

    def len(self, x: Value) -> int:
        """Return the items of a list, or a tensor's first size."""
        if isinstance(x, (*_SEQUENCES, dict)):
            return len(x)
        if self._library.is_array(x) and x.shape:
            return int(x.shape[0])
        message = f"{_described(x)} has no length"
        raise TypeError(message)

    def shape(self, x: Value) -> list[int]:
        """Return the sizes."""
        return [int(size) for size in self._operators.tensor(x).shape]

    def numel(self, x: Value) -> int:
        """Return the number of elements."""
        return prod(self._operators.tensor(x).shape)

    def range(self, start: Value, stop: Value = None, step: Value = 1) -> range:
        """Return Python's range."""
        first, last = (0, start) if stop is None else (start, stop)
        what = "a bound of range"
        made = range(integer(first, what), integer(last, what), integer(step, what))
        if made and (made[-1] - made[0]) // made.step + 1 > self._budget.items:
            self._budget.listed(self._budget.items + 1)
        return made

    # ------------------------------------------------------------------ numbers

    @staticmethod
    def int(x: Value) -> int:
        """Return a number, or a tensor's only element, cut off towards zero."""
        return int(real_in(x))

    @staticmethod
    def float(x: Value) -> float:
        """Return a number, or a tensor's only element, as a float."""
        return float(real_in(x))

    @staticmethod
    def bool(x: Value) -> bool:
        """Return whether a number, or a tensor's only element, is not zero."""
        return bool(number_in(x))


def _fills(count: int, known: int, sizes: tuple[int, ...]) -> bool:
    if -1 in sizes:
        return known > 0 and count % known == 0
    return count == known


def _bound(value: Value) -> int | None:
    return None if value is None else integer(value, "the bound of a slice")


def _described(value: Value) -> str:
    if value is None:
        return "a name with no value on this rank"
    if is_number(value):
        return f"the number {value}"
    if getattr(value, "shape", None) == ():
        return "a tensor without dimensions"
    if isinstance(value, str):
        return f"the word {value!r}"
    return f"{type(value).__name__} {value!r}"
