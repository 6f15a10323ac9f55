"""Ranks that take a step together, and what a name holds on them: rows, columns, views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, NoReturn

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from torch_scenarios.expressions.hollow import hollow, is_hollow, pick
from torch_scenarios.expressions.lanes import (
    EXACT,
    Lanes,
    Stack,
    Value,
    gather_parts,
    take_row,
    together,
    varies,
)

#: bytes of what one name holds on all ranks, or of what one expression makes: what is larger gains
#: nothing from being stacked
LARGEST = 2**28


class CohortError(Exception):
    """This engine cannot take the program; the text says why.

    It is raised in the middle of a step, with columns half changed. So who catches it does not go
    on with them: all begin again without that turn, or the walk takes over (`take_together`). A
    program is never wrong because of it, and a user never sees it.
    """


def leave(why: str) -> NoReturn:
    """Leave the program to the other engine."""
    raise CohortError(why)


def leave_apart(apart: object) -> None:
    """Raise CohortError where the rules find something wrong, or ranks do not make a call together.

    Cohorts know what is right: what is wrong is found once more by the walk, which says who is at
    fault, in words. Here it is asked for alone whether there is any of it.
    """
    if apart:
        leave("a call that is wrong, or that ranks do not make together")


def stay_small(count: int, most: int = LARGEST) -> None:
    """Raise CohortError where there are more bytes, or other things, than are worth a column."""
    if count > most:
        leave(f"{count} where {most} are worth a column")


# Arguments of a call of many ranks -> of one of them, or of some.


def argument_of(value: Any, row: int) -> Any:
    """Return what an argument is in one row, as plain Python."""
    if isinstance(value, np.ndarray):
        return value[row].item()
    if isinstance(value, list):
        return [argument_of(item, row) for item in value]
    if isinstance(value, dict):
        return {key: argument_of(item, row) for key, item in value.items()}
    return value


def arguments_of(value: Any, rows: NDArray[np.int64]) -> Any:
    """Return what an argument is in some rows."""
    if isinstance(value, np.ndarray):
        return value[rows]
    if isinstance(value, list):
        return [arguments_of(item, rows) for item in value]
    if isinstance(value, dict):
        return {key: arguments_of(item, rows) for key, item in value.items()}
    return value


# Who is computed together: `L` of all `W` ranks.


@dataclass(slots=True, eq=False)
class ActiveRanks:
    """Ranks that take a step together, in ascending order.

    `ranks` `[L]` of the `W` of the world. Rows of what a step makes are `L`, columns of what ranks
    hold are `W`; `index` gets from the one to the other, and is a slice, which copies nothing,
    where all ranks are active.

    >>> odd = ActiveRanks(np.array([1, 3, 5]), world_size=6)
    >>> held = np.array([0.0, 10.0, 20.0, 30.0, 40.0, 50.0])
    >>> held[odd.index]
    array([10., 30., 50.])
    >>> odd.row(3), odd.has(4), odd.among(held[odd.index] > 10).ranks.tolist()
    (1, False, [3, 5])
    >>> ActiveRanks(np.arange(6), world_size=6).index
    slice(None, None, None)
    """

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
        self.rank = Lanes(self.ranks, self.world_size - 1)

    @property
    def size(self) -> int:
        """How many they are."""
        return len(self.ranks)

    def among(self, mask: NDArray[np.bool_]) -> ActiveRanks:
        """Return those for which `mask` `[L]` is true; the same object where all are."""
        if mask.all():
            return self
        return ActiveRanks(self.ranks[mask], self.world_size)

    def rows(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows in which `ranks`, all of them active, stand."""
        return ranks if self.everyone else np.searchsorted(self.ranks, ranks)

    def row(self, rank: int) -> int:
        """Return the row in which a rank stands, one of them."""
        return rank if self.everyone else int(np.searchsorted(self.ranks, rank))

    def has(self, rank: int) -> bool:
        """Whether a rank is active."""
        if self.everyone:
            return True
        row = int(np.searchsorted(self.ranks, rank))
        return row < self.size and int(self.ranks[row]) == rank

    def find(self, ranks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return a row for each of `ranks`, and whether that rank is there at all."""
        if self.everyone:
            return ranks, np.ones(len(ranks), np.bool_)
        rows = np.searchsorted(self.ranks, ranks)
        rows[rows == len(self.ranks)] = 0
        return rows, self.ranks[rows] == ranks


class LetBindings:
    """What `let` has named in one list of steps, in one turn of its loops: a number on each rank.

    Lists, and numbers of several types, are kept one by one.

    >>> both = ActiveRanks(np.arange(2), world_size=2)
    >>> half = LetBindings(2)
    >>> half.assign(both, 8)
    >>> half.assign(ActiveRanks(np.array([1]), world_size=2), 2.5)
    >>> half.of(0), half.of(1)
    (8, 2.5)

    The types stay: as one column of floats rank 0 would have 8.0, and `x[half]` would be refused.
    """

    def __init__(self, world_size: int) -> None:
        """Begin on no rank."""
        self._held = np.zeros(world_size, np.bool_)
        self._values: NDArray[Any] | None = None
        self._one: Any = None
        #: whether one value stands for all ranks
        self._same = False

    def assign(self, active: ActiveRanks, value: Value) -> None:
        """Let the name stand for a value on these ranks."""
        self._held[active.index] = True
        if active.everyone and not varies(value):
            self._same, self._one, self._values = True, value, None
            return
        if self._same:
            self._values = _fill(len(self._held), self._one)
            self._same = False
        if isinstance(value, Lanes):
            found = value.values
        elif varies(value):
            found = _objects([take_row(value, row) for row in range(active.size)])
        else:
            found = _fill(active.size, value)
        if self._values is None:
            self._values = np.zeros(len(self._held), found.dtype)
        elif self._values.dtype != found.dtype:
            self._values = _objects(self._values.tolist())
        if self._values.dtype == object and found.dtype != object:
            found = _objects(found.tolist())
        self._values[active.index] = found

    def on(self, active: ActiveRanks) -> Value:
        """Return the value on these ranks; Diverge where it is of several types.

        Raises NameError where one of them lacks it.
        """
        if not self._held[active.index].all():
            raise NameError
        if self._same:
            return self._one
        assert self._values is not None
        found = self._values[active.index]
        return together(found.tolist()) if found.dtype == object else Lanes(found)

    def of(self, rank: int) -> Any:
        """Return the value on one rank; None where it has none."""
        if not self._held[rank]:
            return None
        if self._same:
            return self._one
        assert self._values is not None
        found = self._values[rank]
        return found.item() if isinstance(found, np.generic) else found


def _fill(size: int, value: Any) -> NDArray[Any]:
    kind = {bool: np.bool_, int: np.int64, float: np.float64}.get(value.__class__)
    if kind is None or (kind is np.int64 and not -EXACT <= value <= EXACT):
        return _objects([value] * size)
    return np.full(size, value, kind)


def _objects(values: list[Any]) -> NDArray[Any]:
    found = np.empty(len(values), object)
    found[:] = values
    return found


class Scene(Struct, eq=False):
    """Where a value is computed: on which ranks, with which values of the loops' variables.

    for i in 0..2, ranks: rank > 0        the second turn on 4 ranks
    Scene(active=ranks [1, 2, 3], variables={"i": 1})
    """

    active: ActiveRanks
    variables: Mapping[str, int | LetBindings]


class Column(Struct, eq=False):
    """What a name holds: `[W, *shape]`, and on which ranks it holds anything.

    Of a name that is `listed` each rank holds a list: its tensors lie along dimension 1, all of one
    shape and dtype. `shared` says that a caller keeps the array, so that a part of it is changed in
    a copy only.

    >>> held = np.array([True, True, False])
    >>> x = Column("x", np.arange(6.0).reshape(3, 2), held, whole=False)
    >>> x.shape, x.own(1)
    ((2,), array([2., 3.]))

    A column is one tensor a name for all ranks, which is what makes a step of 1,024 ranks one call
    of NumPy. What has no common shape or dtype has no column; it waits in `Memory.ragged` for the
    first step that looks at it (decision 93).
    """

    name: str
    values: NDArray[Any]
    held: NDArray[np.bool_]
    whole: bool
    shared: bool = False
    listed: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one rank's tensor, or of its list."""
        return self.values.shape[1:]

    def own(self, rank: int) -> Any:
        """Return what one rank holds, in the storage of the column."""
        return make_list(self.values[rank, ...], self.listed)

    @property
    def hollow(self) -> bool:
        """Whether its values are not computed."""
        return is_hollow(self.values)

    def open_for_change(self) -> NDArray[Any]:
        """Return the array for a change in place."""
        if self.shared:
            self.values, self.shared = self.values.copy(), False
        return self.values


def make_list(value: NDArray[Any], is_list: object) -> Any:
    """Return the tensors that lie along dimension 0 as a list, where they are one."""
    return list(value) if is_list else value


class View(Stack):
    """All or a part of what a name holds, in its own storage.

    `offsets` `[L or 1, *shape]` say which elements of a rank's tensor, counted flat; None is all.
    `guard` is asked before an expression reads it, where work writes a part of the tensor.

    >>> x = Column("x", np.arange(6.0).reshape(3, 2), held=np.ones(3, np.bool_), whole=True)
    >>> view = View(x, ActiveRanks(np.array([0, 2]), world_size=3))
    >>> first = view.index((0,))
    >>> first.take()
    array([0., 4.])
    >>> first.put(None, np.array([-1.0, -2.0]))
    >>> x.values
    array([[-1.,  1.],
           [ 2.,  3.],
           [-2.,  5.]])

    In torch `x[0]` is a view, and a receive into it changes x. NumPy has views of one array, but
    none that takes another part on each rank: `x[rank]` is the first element of rank 0 and the
    second of rank 1. Offsets say that, for parts of parts as well.
    """

    __slots__ = ("active", "column", "guard", "offsets")

    def __init__(
        self,
        column: Column,
        active: ActiveRanks,
        offsets: NDArray[np.int64] | None = None,
        guard: Callable[[View], None] | None = None,
    ) -> None:
        """Look at what a name holds on some ranks."""
        self.column = column
        self.active = active
        self.offsets = offsets
        self.guard = guard

    @property
    def size(self) -> int:
        """How many ranks it is a view on."""
        return self.active.size

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one rank's part."""
        return self.column.shape if self.offsets is None else self.offsets.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of every rank's tensor."""
        return self.column.values.dtype

    @property
    def listed(self) -> bool:
        """Whether it is a whole list of tensors on each rank."""
        return self.column.listed and self.offsets is None

    def items(self) -> list[View]:
        """Return the tensors of a list, one after the other."""
        return [self.index((at,)) for at in range(self.shape[0])]

    @property
    def whole(self) -> bool:
        """Whether it is all of what the name holds."""
        return prod(self.shape) >= prod(self.column.shape)

    def places(self) -> NDArray[np.int64]:
        """Return the offsets, of the whole as well."""
        if self.offsets is not None:
            return self.offsets
        if self.column.hollow:
            return hollow((1, *self.column.shape), np.int64)
        return count_offsets(self.column.shape)

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
        if self.column.hollow:
            return hollow((self.size if rows is None else len(rows), *self.shape), self.dtype)
        if self.offsets is None:
            part: NDArray[Any] = values[
                self.active.index if rows is None else self.active.ranks[rows]
            ]
            return part
        offsets = self._offsets(rows)
        return np.asarray(values.reshape(len(values), -1)[self._take_row(offsets, rows)])

    def row(self, row: int) -> NDArray[Any]:
        """Return one rank's part."""
        if self.column.hollow:
            return hollow(self.shape, self.dtype)
        if self.offsets is None and self.guard is None:
            return np.asarray(self.column.values[self.active.ranks[row], ...])
        return np.asarray(self.take(np.asarray([row]))[0, ...])

    def among(self, rows: NDArray[np.int64]) -> View:
        """Return the view on some of the ranks."""
        active = ActiveRanks(self.active.ranks[rows], self.active.world_size)
        offsets = None if self.offsets is None else self._offsets(rows)
        return View(self.column, active, offsets, self.guard)

    def index(self, index: tuple[Any, ...]) -> View:
        """Return the same part of every tensor."""
        return self.part(self.places()[(slice(None), *index, ...)])

    def gather(self, at: NDArray[np.int64]) -> View:
        """Return each tensor's own part, by places along dimension 0."""
        if self.offsets is None and len(self.shape) == 1:
            return self.part(at)
        return self.part(gather_parts(self.places(), at))

    def reshape(self, shape: tuple[int, ...]) -> View:
        """Return the tensors in another shape."""
        places = self.places()
        return self.part(places.reshape(len(places), *shape))

    def own_parts(self, parts: Callable[[NDArray[Any], int], Any]) -> Stack | None:
        """Return the part of each tensor that a function takes of it."""
        places = self.places()
        found = together(
            [parts(places[row if len(places) > 1 else 0, ...], row) for row in range(self.size)]
        )
        return self.part(found.take()) if isinstance(found, Stack) else None

    def join(self, parts: Sequence[tuple[NDArray[np.int64], Any]], size: int) -> Stack:
        """Return parts of what one name holds as one view; else a copy of them all."""
        views = [(rows, each) for rows, each in parts if isinstance(each, View)]
        if len(views) < len(parts) or any(each.column is not self.column for _, each in views):
            return super().join(parts, size)
        ranks = np.empty(size, np.int64)
        offsets = None
        if self.column.hollow:
            offsets = None if self.whole else hollow((size, *self.shape), np.int64)
        elif any(view.offsets is not None for _, view in views):
            offsets = np.empty((size, *self.shape), np.int64)
        for rows, view in views:
            ranks[rows] = view.active.ranks
            if offsets is not None and not self.column.hollow:
                offsets[rows] = view.places()
        guard = next((each.guard for _, each in views if each.guard is not None), None)
        return View(self.column, ActiveRanks(ranks, self.active.world_size), offsets, guard)

    def put(self, rows: NDArray[np.int64] | None, found: NDArray[Any]) -> None:
        """Store elements `[rows, *shape]` on the ranks of these rows; None: on all."""
        if self.column.hollow:
            return
        values = self.column.open_for_change()
        if self.offsets is None:
            values[self.active.index if rows is None else self.active.ranks[rows]] = found
            return
        values.reshape(len(values), -1)[self._take_row(self._offsets(rows), rows)] = found

    def _offsets(self, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        assert self.offsets is not None
        many = rows is not None and len(self.offsets) > 1
        return pick(self.offsets, rows) if many else self.offsets

    def _take_row(self, offsets: NDArray[np.int64], rows: NDArray[np.int64] | None = None) -> Any:
        ranks = self.active.ranks if rows is None else self.active.ranks[rows]
        return ranks.reshape(-1, *(1,) * (offsets.ndim - 1)), offsets


@lru_cache(maxsize=64)
def count_offsets(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the flat offsets of a tensor's elements, `[1, *shape]`."""
    return np.arange(prod(shape), dtype=np.int64).reshape(1, *shape)
