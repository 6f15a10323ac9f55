"""What one expression may make: the elements of its tensors, the items of its lists.

Reset when the evaluation of an expression begins, charged before anything is allocated. The
bounds come with the compiled expression, so that whoever compiled it has decided.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from runner.language.limits import DEFAULT, FLAGS, Limits

if TYPE_CHECKING:
    from collections.abc import Iterable

#: tensors that one expression may make, each of the largest size
_WORK = 4

#: multiplications of a matrix product that count as one element
_MATMUL = 64

#: operations in comprehensions and on list items, for each item that may be made
_OPERATIONS = 16


class Budget:
    """The state of one executor's evaluation; evaluations never overlap in it."""

    __slots__ = ("elements", "items", "items_left", "operations_left", "work_left")

    def __init__(self, limits: Limits = DEFAULT) -> None:
        """Open it with bounds for what is made outside of expressions."""
        self.begin(limits.max_elements, limits.max_items)

    def begin(self, elements: int, items: int) -> None:
        """Open the budget of one evaluation."""
        self.elements = elements
        self.work_left = elements * _WORK
        self.items = self.items_left = items
        self.operations_left = items * _OPERATIONS

    def tensor(self, count: int) -> None:
        """Charge a tensor of `count` elements; ValueError where it is too large."""
        if count > self.elements:
            raise ValueError(too_large(count, self.elements))
        self.work(count)

    def work(self, count: int) -> None:
        """Charge a look at `count` elements."""
        self.work_left -= count
        if self.work_left < 0:
            most = self.elements * _WORK
            message = f"it computes more than {most} elements in all"
            raise ValueError(_raised(message, "max_elements"))

    def shaped(self, shape: Iterable[int]) -> None:
        """Charge a tensor of that shape."""
        self.tensor(prod(shape))

    def matmul(self, multiplications: int) -> None:
        """Charge the multiplications of a matrix product."""
        self.work(multiplications // _MATMUL)

    def operations(self, count: int) -> None:
        """Charge `count` operations on plain numbers and list items."""
        self.operations_left -= count
        if self.operations_left < 0:
            most = self.items * _OPERATIONS
            raise ValueError(_raised(f"it takes more than {most} operations", "max_items"))

    def listed(self, count: int) -> None:
        """Charge `count` list items; ValueError where they are too many."""
        self.items_left -= count
        if self.items_left < 0:
            message = f"its lists have more than {self.items} items in all"
            raise ValueError(_raised(message, "max_items"))

    def nested(self, value: object) -> int:
        """Charge every item of a nested list, as often as it is reached; return how many."""
        if not isinstance(value, list | tuple | range):
            return 0
        self.listed(len(value))
        if isinstance(value, range):
            return len(value)
        return len(value) + sum(self.nested(item) for item in value)


def too_large(count: int, most: int) -> str:
    """Return the complaint about a tensor of too many elements."""
    flag = FLAGS["max_elements"]
    return f"a tensor of {count} elements is too large; at most {most} ({flag} raises the bound)"


def _raised(message: str, bound: str) -> str:
    return f"{message} ({FLAGS[bound]} raises the bound)"
