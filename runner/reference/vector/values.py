"""What a form is worth on many ranks at once: a number for each, a tensor for each, or one for all.

A value that is the same on every rank is itself: a number, a list, an array. What differs from rank
to rank is one of the three classes here. `L` is the number of ranks that are active, `W` of all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, prod
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

#: whatever a form is worth
Value: TypeAlias = Any

#: bytes of what one name holds on all ranks, or of what one expression makes: what is larger gains
#: nothing from being stacked
LARGEST = 2**28

#: beyond this an int64, or a double, does not calculate as Python's integers do
EXACT = 2**53


class Beyond(Exception):  # noqa: N818 -- no error: the other engine takes the program
    """The program is none for this engine; the text says why."""


def leave(why: str) -> NoReturn:
    """Leave the program to the other engine."""
    raise Beyond(why)


@dataclass(slots=True, eq=False)
class Lanes:
    """A plain number on each rank: bool, int64 or float64 `[L]`, and bounds of all of them."""

    values: NDArray[Any]
    low: float = -inf
    high: float = inf

    @property
    def kind(self) -> str:
        """`b`, `i` or `f`: bool, int, float."""
        return str(self.values.dtype.kind)


@dataclass(slots=True, eq=False)
class Stack:
    """A tensor on each rank, all of one shape and dtype: `[L, *shape]`, shared with nobody."""

    values: NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one rank's tensor."""
        return self.values.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of every rank's tensor."""
        return self.values.dtype

    def take(self, rows: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """Return the elements `[L, *shape]`, or a copy of those of some rows."""
        return self.values if rows is None else self.values[rows]


@dataclass(slots=True, eq=False)
class Column:
    """What a name holds: `[W, *shape]`, and on which ranks it holds anything.

    `shared` tells that somebody keeps the array, so that a part of it is changed in a copy only.
    """

    name: str
    values: NDArray[Any]
    held: NDArray[np.bool_]
    whole: bool
    shared: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one rank's tensor."""
        return self.values.shape[1:]

    def changing(self) -> NDArray[Any]:
        """Return the array for a change in place."""
        if self.shared:
            self.values, self.shared = self.values.copy(), False
        return self.values


@dataclass(slots=True, eq=False)
class Active:
    """Ranks that take a step together, in ascending order."""

    ranks: NDArray[np.int64]
    world_size: int
    everyone: bool = field(init=False)
    #: what picks these ranks out of the rows of a column
    index: Any = field(init=False)
    rank: Lanes = field(init=False)

    def __post_init__(self) -> None:
        """Note whether they are all."""
        self.everyone = len(self.ranks) == self.world_size
        self.index = slice(None) if self.everyone else self.ranks
        self.rank = Lanes(self.ranks, 0, self.world_size - 1)

    @property
    def size(self) -> int:
        """How many they are."""
        return len(self.ranks)

    def among(self, mask: NDArray[np.bool_]) -> Active:
        """Return those for which `mask` `[L]` is true; the same object where all are."""
        if mask.all():
            return self
        return Active(self.ranks[mask], self.world_size)

    def rows(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows in which `ranks`, all of them active, stand."""
        return ranks if self.everyone else np.searchsorted(self.ranks, ranks)

    def find(self, ranks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return a row for each of `ranks`, and whether that rank is there at all."""
        if self.everyone:
            return ranks, np.ones(len(ranks), np.bool_)
        rows = np.searchsorted(self.ranks, ranks)
        rows[rows == len(self.ranks)] = 0
        return rows, self.ranks[rows] == ranks


@dataclass(slots=True, eq=False)
class View:
    """All or a part of what a name holds, in its own storage.

    `offsets` `[L or 1, *shape]` say which elements of a rank's tensor, counted flat; None is all.
    `guard` is asked before an expression reads it, where work writes a part of the tensor.
    """

    column: Column
    active: Active
    offsets: NDArray[np.int64] | None = None
    guard: Callable[[View], None] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one rank's part."""
        return self.column.shape if self.offsets is None else self.offsets.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of every rank's tensor."""
        return self.column.values.dtype

    @property
    def whole(self) -> bool:
        """Whether it is all of what the name holds."""
        return prod(self.shape) >= prod(self.column.shape)

    def places(self) -> NDArray[np.int64]:
        """Return the offsets, of the whole as well."""
        return counted(self.column.shape) if self.offsets is None else self.offsets

    def part(self, offsets: NDArray[np.int64]) -> View:
        """Return a part of it, by the offsets in the whole tensor."""
        return View(self.column, self.active, offsets, self.guard)

    def take(self, rows: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """Return the elements `[L, *shape]`, or a copy of those of some rows.

        All elements of all ranks are the storage itself.
        """
        if self.guard is not None:
            self.guard(self)
        values = self.column.values
        if self.offsets is None:
            part: NDArray[Any] = values[
                self.active.index if rows is None else self.active.ranks[rows]
            ]
            return part
        offsets = self.offsets
        if rows is not None and len(offsets) > 1:
            offsets = offsets[rows]
        return np.asarray(values.reshape(len(values), -1)[self._at(offsets, rows)])

    def put(self, rows: NDArray[np.int64] | None, found: NDArray[Any]) -> None:
        """Store elements `[rows, *shape]` on the ranks of these rows; None: on all."""
        values = self.column.changing()
        if self.offsets is None:
            values[self.active.index if rows is None else self.active.ranks[rows]] = found
            return
        offsets = self.offsets
        if rows is not None and len(offsets) > 1:
            offsets = offsets[rows]
        values.reshape(len(values), -1)[self._at(offsets, rows)] = found

    def _at(self, offsets: NDArray[np.int64], rows: NDArray[np.int64] | None = None) -> Any:  # noqa: ANN401
        ranks = self.active.ranks if rows is None else self.active.ranks[rows]
        return ranks.reshape(-1, *(1,) * (offsets.ndim - 1)), offsets


@lru_cache(maxsize=64)
def counted(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the flat offsets of a tensor's elements, `[1, *shape]`."""
    return np.arange(prod(shape), dtype=np.int64).reshape(1, *shape)


def varies(value: Value) -> bool:
    """Return whether a value may differ from rank to rank."""
    if isinstance(value, (Lanes, Stack, View)):
        return True
    return isinstance(value, list) and any(varies(item) for item in value)
