"""Shapes and conversions over one library.

`reshape` (where the strides allow it) and `permute_dims` give views: what is stored into them, the
tensor holds. Everything else copies.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from runner.language.constructors import axes, integer, number_in, real_in
from runner.language.parts import SEQUENCES, described
from runner.language.promotion import promoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.language.arithmetic import Value
    from runner.language.operators import Operators
    from runner.language.parts import Parts


class Shaping:
    """The functions on shapes, and on lists of tensors."""

    def __init__(self, operators: Operators, parts: Parts) -> None:
        """Share the operators' library and budget, and how a tensor is taken apart."""
        self._operators = operators
        self._parts = parts
        self._library = operators.library
        self._budget = operators.budget

    def views(self) -> dict[str, Callable[..., Any]]:
        """Return what shares memory, or looks at no element: it works in every dtype."""
        return {
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

    # ------------------------------------------------------------------ shapes

    def reshape(self, x: Value, shape: Value) -> Value:
        """Return the elements in another shape: a view where the strides allow it."""
        array = self._operators.tensor(x)
        parts = shape if isinstance(shape, SEQUENCES) else [shape]
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
            arrays = self._parts.each(arrays, 1, unpacks=False)
        if not isinstance(arrays, SEQUENCES) or not arrays:
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
        if isinstance(x, (*SEQUENCES, dict)):
            return len(x)
        if self._library.is_array(x) and x.shape:
            return int(x.shape[0])
        message = f"{described(x)} has no length"
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
