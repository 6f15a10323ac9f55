"""What all ranks hold, a column for each name, and which work uses it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from torch_scenarios.errors import Mark
from torch_scenarios.expressions.hollow import hollow
from torch_scenarios.expressions.lanes import Stack, Value
from torch_scenarios.model.plan import Plan
from torch_scenarios.operations.base import Group
from torch_scenarios.reference.rules.waiting import clash
from torch_scenarios.reference.state import Ledger
from torch_scenarios.reference.vector.call import Change, CollectiveColumn, PostColumn, WorkColumn
from torch_scenarios.reference.vector.cohort import (
    ActiveRanks,
    Column,
    View,
    leave,
    leave_apart,
    stay_small,
)

# What all ranks hold: a column for each name, and who of them is a member of what.


def _values(value: Value, active: ActiveRanks) -> NDArray[Any]:
    """Return the elements of a tensor on each rank `[L, *shape]`; TypeError for other values."""
    if isinstance(value, Stack):
        return np.asarray(value.take())
    if not isinstance(value, np.ndarray):
        raise TypeError(value)
    return np.broadcast_to(value, (active.size, *value.shape))


class Memory:
    """The columns of a run, charged to its ledger.

        name       column                      on rank 1 of 3
        x          [3, 4] float32              x[1], 4 elements
        parts      [3, 2, 4], listed           [parts[1, 0], parts[1, 1]]
        meta       none: `ragged`              its own object

    A name that only some ranks hold has a column of all `W` rows and `held` for those. So rank 3 is
    at row 3 of every column, and no step has to look up where.
    """

    def __init__(
        self, plan: Plan, ledger: Ledger, flights: Flights, *, hollow: bool = False
    ) -> None:
        """Begin with nothing held; of what is `hollow` shape and dtype alone are known."""
        self._plan = plan
        self.hollow = hollow
        self._ledger = ledger
        self._flights = flights
        self.columns: dict[str, Column] = {}
        #: what names hold that no column has, by rank (None: nothing): objects, and what is of
        #: several shapes or types. The first step that looks at one of them is walked
        self.ragged: dict[str, list[Any]] = {}
        #: what models hold: each rank has its own part, and computes with it by itself
        self._of_models = {name for model in plan.scenario.models.values() for name in model.values}
        #: the groups that a name means, each on its members
        self.groups: dict[str, tuple[Group, ...]] = dict(plan.names)
        #: those that were created on the way, in order
        self.created: list[Group] = []
        self._group_ranks: dict[str, NDArray[np.int64]] = {}
        self._group_numbers: dict[str, NDArray[np.int64]] = {}
        self._listed: dict[str, Any] = {}
        self._keys: dict[str, tuple[str, ...]] = {}

    def view(self, name: str, active: ActiveRanks) -> View | None:
        """Return what a name holds on these ranks; None where one of them holds nothing."""
        column = self.columns.get(name)
        if column is None or not (column.whole or column.held[active.index].all()):
            return None
        writing = self._flights.find_writing(name, active)
        leave_apart(any(flight.whole for flight in writing))
        return View(column, active, None, self._flights.check_read if writing else None)

    def check_ragged(self, names: Collection[str]) -> None:
        """Raise CohortError where some name holds what no column has."""
        if not (self.ragged.keys() | self._of_models).isdisjoint(names):
            leave("a name with several shapes or types, or a part of a model")

    def hold(self, name: str, active: ActiveRanks, value: Value, mark: Mark | None) -> NDArray[Any]:
        """Let a name hold a copy of a tensor; returns its elements, which no step changes.

        Raises TypeError or ValueError for what has no column: a list of tensors that are not alike,
        and a name of which other ranks hold tensors of another shape or dtype.
        """
        self.check_ragged({name})
        is_list = isinstance(value, list)
        values = self._stack(value, active) if isinstance(value, list) else _values(value, active)
        if self.hollow:
            values = hollow(values.shape, values.dtype)
        column = self._column(name, active, values, mark, listed=is_list)
        fresh = value.__class__ is Stack and values.base is None and values.flags.c_contiguous
        if fresh and active.everyone:
            column.values, column.shared = values, True
        elif not self.hollow:
            column.open_for_change()[active.index] = values
        column.held[active.index] = True
        column.whole = column.whole or bool(column.held.all())
        if self.hollow:
            return values
        return values.copy() if isinstance(value, View) and value.offsets is None else values

    def _stack(self, items: list[Value], active: ActiveRanks) -> NDArray[Any]:
        """Return the tensors of a list next to each other `[L, n, *shape]`.

        Raises TypeError or ValueError where they are not of one shape and dtype.
        """
        found = [_values(item, active) for item in items]
        stay_small(sum(each.nbytes for each in found))
        if self.hollow or len({each.dtype for each in found}) > 1:
            raise TypeError(items)
        return np.stack(found, axis=1)

    def _column(
        self,
        name: str,
        active: ActiveRanks,
        values: NDArray[Any],
        mark: Mark | None,
        *,
        listed: bool = False,
    ) -> Column:
        """Return the column of a name, made anew where what is kept has another shape or dtype.

        Raises TypeError where ranks that take no part would lose what they hold.
        """
        column = self.columns.get(name)
        if column is not None:
            same = column.shape == values.shape[1:] and column.values.dtype == values.dtype
            if same and column.listed == listed:
                return column
            others = column.held.copy()
            others[active.index] = False
            if others.any():
                raise TypeError(name)
        size = active.world_size
        count = size * values.dtype.itemsize * prod(values.shape[1:])
        whole = (size, *values.shape[1:])
        if not self.hollow:
            stay_small(count)
            self._ledger.keep_bytes(count, mark)
        made = Column(
            name=name,
            values=hollow(whole, values.dtype) if self.hollow else np.zeros(whole, values.dtype),
            held=np.zeros(size, np.bool_),
            whole=False,
            listed=listed,
        )
        self.columns[name] = made
        return made

    def is_known(self, name: str) -> bool:
        """Whether something has a name."""
        return name in {*self.groups, *self._plan.scenario.tensors, *self._plan.introduced}

    def create(self, group: Group) -> int:
        """Let all ranks have a group that they create; returns which of them it is."""
        self.groups[group.name] = (replace(group, key=f"{group.name}#0"),)
        self.created += self.groups[group.name]
        return len(self.created) - 1

    def group(self, name: str, rank: int) -> Group | None:
        """Return the group of a name that a rank is in."""
        number = int(self.group_numbers(name)[rank])
        return None if number < 0 else self.groups[name][number]

    def keys(self, name: str) -> tuple[str, ...]:
        """Return the keys of the groups of a name."""
        found = self._keys.get(name)
        if found is None:
            found = self._keys[name] = tuple(group.key for group in self.groups[name])
        return found

    def list_groups(self, name: str) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...] | None]:
        """Return the members and keys of the groups of a name; no keys where sizes differ."""
        found = self._listed.get(name)
        if found is None:
            groups = self.groups[name]
            alike = len({group.size for group in groups}) == 1
            keys = self.keys(name) if alike else None
            found = self._listed[name] = tuple(group.ranks for group in groups), keys
        return found

    def group_ranks(self, name: str) -> NDArray[np.int64]:
        """Return `group_rank(name)` on every rank `[W]`: -1 outside."""
        self._learn(name)
        return self._group_ranks[name]

    def group_numbers(self, name: str) -> NDArray[np.int64]:
        """Return which of the groups of that name each rank is in `[W]`: -1 for none."""
        self._learn(name)
        return self._group_numbers[name]

    def group_sizes(self, name: str) -> NDArray[np.int64]:
        """Return `group_size(name)` on every rank `[W]`: 0 outside."""
        sizes = np.array([*(group.size for group in self.groups[name]), 0], np.int64)
        return sizes[self.group_numbers(name)]

    def _learn(self, name: str) -> None:
        if name in self._group_ranks:
            return
        size, groups = self._plan.world_size, self.groups.get(name)
        if groups is None or any(len({*group.ranks, -1}) <= group.size for group in groups):
            leave("a group that is created on the way, or has a rank twice")
        ranks, numbers = np.full(size, -1, np.int64), np.full(size, -1, np.int64)
        for number, group in reversed(list(enumerate(self.groups[name]))):
            members = np.asarray(group.ranks, np.int64)
            ranks[members] = np.arange(group.size)
            numbers[members] = number
        self._group_ranks[name], self._group_numbers[name] = ranks, numbers


# Which tensors asynchronous work still uses; to use one twice is a race: not for this engine.
#
# The parts of a tensor that two operations use are compared by their first and last elements.
# Parts that lie within each other without touching (columns of a matrix) count as touching: the
# other engine looks closer.


class Flight(Struct, eq=False):
    """A part of a tensor in the hands of a work: elements `low` to `high` on each of its ranks.

    `live` `[W]` tells on which ranks the work was not waited for yet. It is the
    :class:`torch_scenarios.reference.state.InFlightAccess` of many ranks, and coarser: what lies
    between `low` and `high` counts as used. Two columns of a matrix touch by that rule; the program
    is then walked, where memory is compared element by element.
    """

    work: WorkColumn
    writes: bool
    whole: bool
    low: Any
    high: Any
    live: NDArray[np.bool_]
    left: int


class Flights:
    """What work uses of the tensors of all ranks, by the name of the tensor.

    A race is wrong, and what is wrong is found by the walk. So each check raises CohortError
    and says no more: it may be too careful, but never too lax.
    """

    def __init__(self, world_size: int, *, hollow: bool = False) -> None:
        """Begin with none; with `hollow` tensors no part is compared with another."""
        self._size = world_size
        self._hollow = hollow
        self._by_name: dict[str, list[Flight]] = {}

    def find_writing(self, name: str, active: ActiveRanks) -> list[Flight]:
        """Return the flights that write what a name holds on one of these ranks."""
        return [
            flight
            for flight in self._by_name.get(name, ())
            if flight.writes and bool(flight.live[active.index].any())
        ]

    def check_read(self, view: View) -> None:
        """Raise CohortError where an expression reads a part of a tensor that work writes."""
        self.check(view, writes=False)

    def check_look(self, name: str, active: ActiveRanks) -> None:
        """Raise CohortError where something may be expected of a name while work writes it."""
        leave_apart(self.find_writing(name, active))

    def check(self, view: View, *, writes: bool) -> None:
        """Raise CohortError where a call on a part of a tensor races with work that uses it."""
        for flight in self._by_name.get(view.column.name, ()):
            if clash(writes, flight.writes):
                self._compare(flight, view)

    def check_name(self, name: str, active: ActiveRanks) -> None:
        """Raise CohortError where a name gets a new value while work uses the old one."""
        flights = self._by_name.get(name, ())
        leave_apart(any(flight.live[active.index].any() for flight in flights))

    def _compare(self, flight: Flight, view: View) -> None:
        low, high = bounds(view)
        rows = np.searchsorted(flight.work.active.ranks, view.active.ranks)
        rows[rows == flight.work.active.size] = 0
        theirs = [each if each.ndim == 0 else each[rows] for each in (flight.low, flight.high)]
        touches = (low <= theirs[1]) & (theirs[0] <= high) & flight.live[view.active.index]
        leave_apart(touches.any())

    def take(self, work: WorkColumn, view: View, *, writes: bool) -> None:
        """Hand a part of a tensor over to a work."""
        if self._hollow or 0 in view.shape:
            return
        live = np.zeros(self._size, np.bool_)
        live[view.active.index] = True
        low, high = bounds(view)
        flight = Flight(
            work=work,
            writes=writes,
            whole=view.whole,
            low=low,
            high=high,
            live=live,
            left=view.active.size,
        )
        self._by_name.setdefault(view.column.name, []).append(flight)

    def give_back(self, work: WorkColumn, active: ActiveRanks) -> None:
        """Take back what a work used on ranks that have waited for it."""
        for name in work.flown:
            flights = self._by_name.get(name, [])
            for flight in [each for each in flights if each.work is work]:
                before = flight.live[active.index]
                flight.left -= int(before.sum())
                flight.live[active.index] = False
                if not flight.left:
                    flights.remove(flight)


def check_together(used: Sequence[tuple[View, bool]]) -> None:
    """Raise CohortError where one call writes (True) a part that it uses twice."""
    if len(used) == 1 or not any(writes for _, writes in used):
        return
    if used[0][0].column.hollow:
        return
    by_name: dict[str, list[tuple[View, bool]]] = {}
    for view, writes in used:
        by_name.setdefault(view.column.name, []).append((view, writes))
    for parts in by_name.values():
        leave_apart(len(parts) > 1 and _may_touch(parts))


def _may_touch(parts: Sequence[tuple[View, bool]]) -> bool:
    """Return whether parts of one tensor may touch on some rank, one of them stored into."""
    spans = [(*(each.reshape(-1) for each in bounds(view)), writes) for view, writes in parts]
    for at, (low, high, writes) in enumerate(spans):
        for other_low, other_high, written in spans[at + 1 :]:
            if clash(writes, written) and bool(((low <= other_high) & (other_low <= high)).any()):
                return True
    return False


def bounds(view: View) -> tuple[Any, Any]:
    """Return the first and last element of a part, counted flat: one for all ranks, or `[L]`."""
    places = view.places()
    if places.size == 0:
        return np.asarray(1), np.asarray(0)
    if len(places) == 1:
        return np.asarray(places.min()), np.asarray(places.max())
    flat = places.reshape(len(places), -1)
    return flat.min(axis=1), flat.max(axis=1)


# What a work brought, put in place: columns change, and what changed is noted.


def put_in_place(
    post: PostColumn, active: ActiveRanks, rows: NDArray[np.int64] | None, slack: dict[str, Any]
) -> list[Change]:
    """Store what arrived on the rows of a post; returns what changed."""
    if isinstance(post, CollectiveColumn):
        found = []
        for argument, values in post.results.items():
            view = post.arguments[argument]
            if isinstance(view, View):
                found.append(_put(view, active, rows, values))
                if argument in post.bounds and view.offsets is None:
                    bounds = post.bounds[argument]
                    slack[view.column.name] = bounds if rows is None else bounds[rows]
        return found
    if post.target is None or post.arrived is None:
        return []
    change = _put(post.target, active, rows, post.arrived)
    return [change]


def _put(
    view: View, active: ActiveRanks, rows: NDArray[np.int64] | None, values: NDArray[Any]
) -> Change:
    found = values if rows is None else values[rows]
    view.put(rows, found)
    offsets = view.offsets
    if offsets is not None and rows is not None and len(offsets) > 1:
        offsets = offsets[rows]
    return Change(view.column.name, active, offsets, found, view.listed)
