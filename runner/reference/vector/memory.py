"""What all ranks hold: a column for each name, and who of them is a member of what."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.reference.vector.values import LARGEST, Active, Column, Stack, Value, View, leave

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runner.plan import Plan
    from runner.problems import Mark
    from runner.reference.ledger import Ledger
    from runner.reference.vector.flights import Flights


class Memory:
    """The columns of a run, charged to its ledger."""

    def __init__(self, plan: Plan, ledger: Ledger, flights: Flights) -> None:
        """Begin with nothing held."""
        self._plan = plan
        self._ledger = ledger
        self._flights = flights
        self.columns: dict[str, Column] = {}
        self._group_ranks: dict[str, NDArray[np.int64]] = {}
        self._group_numbers: dict[str, NDArray[np.int64]] = {}

    def view(self, name: str, active: Active) -> View:
        """Return what a name holds on these ranks. Raises Beyond where one holds nothing."""
        column = self.columns.get(name)
        if column is None or not (column.whole or column.held[active.index].all()):
            leave(f"{name} has no value on some rank")
        writing = self._flights.writing(name, active)
        if any(flight.whole for flight in writing):
            leave(f"{name} is still being written")
        return View(column, active, None, self._flights.check_read if writing else None)

    def hold(self, name: str, active: Active, value: Value, mark: Mark | None) -> NDArray[Any]:
        """Let a name hold a copy of a tensor; returns its elements, which nobody changes."""
        if isinstance(value, Stack | View):
            values = value.take()
        elif isinstance(value, np.ndarray):
            values = np.broadcast_to(value, (active.size, *value.shape))
        else:
            leave("a list of tensors")
        column = self._column(name, active, values, mark)
        fresh = isinstance(value, Stack) and values.base is None and values.flags.c_contiguous
        if fresh and active.everyone:
            column.values, column.shared = values, True
        else:
            column.changing()[active.index] = values
        column.held[active.index] = True
        column.whole = column.whole or bool(column.held.all())
        return values.copy() if isinstance(value, View) and value.offsets is None else values

    def _column(self, name: str, active: Active, values: NDArray[Any], mark: Mark | None) -> Column:
        column = self.columns.get(name)
        if column is not None:
            if column.shape == values.shape[1:] and column.values.dtype == values.dtype:
                return column
            others = column.held.copy()
            others[active.index] = False
            if others.any():
                leave(f"{name} has several shapes or dtypes")
        size = active.world_size
        count = size * values.dtype.itemsize * prod(values.shape[1:])
        if count > LARGEST:
            leave("large tensors")
        self._ledger.keep_bytes(count, mark)
        made = Column(
            name=name,
            values=np.zeros((size, *values.shape[1:]), values.dtype),
            held=np.zeros(size, np.bool_),
            whole=False,
        )
        self.columns[name] = made
        return made

    # ------------------------------------------------------------------ groups

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
        sizes = np.array([*(group.size for group in self._plan.names[name]), 0], np.int64)
        return sizes[self.group_numbers(name)]

    def _learn(self, name: str) -> None:
        if name in self._group_ranks:
            return
        if name not in self._plan.names:
            leave("a group that is created on the way")
        size = self._plan.world_size
        ranks, numbers = np.full(size, -1, np.int64), np.full(size, -1, np.int64)
        for number, group in reversed(list(enumerate(self._plan.names[name]))):
            members = np.asarray(group.ranks, np.int64)
            if len(set(group.ranks)) != group.size or members.min(initial=0) < 0:
                leave("a group with a rank twice")
            ranks[members] = np.arange(group.size)
            numbers[members] = number
        self._group_ranks[name], self._group_numbers[name] = ranks, numbers
