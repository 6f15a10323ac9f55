"""What happened, kept in columns: which ranks took which step, and what that changed.

Millions of events would fill the memory many times over, and hardly one of them is looked at. So
an event is made when it is asked for, out of the column of its step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.operations.entries import Entry
from runner.plan import WORLD
from runner.reference.vector.rows import own, some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from runner.plan import Group, Plan
    from runner.reference.vector.memory import Memory
    from runner.reference.vector.unrolled import Instance
    from runner.reference.vector.values import Active, Column


@dataclass(slots=True, eq=False)
class Change:
    """Elements that a step stored on its ranks: flat `offsets` `[L or 1, *shape]`; None is all."""

    name: str
    active: Active
    offsets: NDArray[np.int64] | None
    values: NDArray[Any]


@dataclass(slots=True, eq=False)
class Link:
    """Which meetings the ranks of a step take part in: a collective, or messages with `peers`.

    `keys` are the keys of the groups, by the number that a rank's group has in `numbers` `[W]`.
    """

    keys: tuple[str, ...]
    numbers: NDArray[np.int64]
    position: int = 0
    sends: bool = False
    peers: NDArray[np.int64] | None = None
    tags: Any = 0

    def among(self, rows: NDArray[np.int64]) -> Link:
        """Return the link of some of the ranks."""
        if self.peers is None:
            return self
        tags = self.tags[rows] if isinstance(self.tags, np.ndarray) else self.tags
        return Link(self.keys, self.numbers, 0, self.sends, self.peers[rows], tags)


@dataclass(slots=True, eq=False)
class Said:
    """What names a call: its arguments as far as its label shows them, its group, its meetings."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    group: str = WORLD
    links: tuple[Link, ...] = ()

    def among(self, rows: NDArray[np.int64]) -> Said:
        """Return the same of some of the ranks."""
        arguments = some(self.arguments, rows)
        return Said(arguments, self.group, tuple(link.among(rows) for link in self.links))


@dataclass(slots=True, eq=False)
class Batch:
    """One step, taken by some ranks at once: an event for each of them.

    `names` are those that it may have stored into; `slack` and `observed` as in an event, for each
    row. Where something is expected beside it, `before` and `after` are what its ranks held.
    """

    instance: Instance
    active: Active
    names: tuple[str, ...]
    said: Said
    changes: tuple[Change, ...] = ()
    slack: Mapping[str, NDArray[Any]] | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    observed: Mapping[str, Any] | None = None

    def label(self, plan: Plan, numbers: Callable[[str], NDArray[np.int64]], rank: int) -> str:
        """Return the label of a rank's event."""
        step = self.instance.step
        if step.name is not None:
            return step.name
        if step.operation is None:
            return "expect"
        row = int(self.active.rows(np.asarray([rank]))[0])
        arguments = {param.name: None for param in step.operation.params}
        arguments |= {name: own(value, row) for name, value in self.said.arguments.items()}
        entry = Entry(rank=rank, group=self._group(plan, numbers, rank), arguments=arguments)
        return step.operation.label(entry)

    def _group(self, plan: Plan, numbers: Callable[[str], NDArray[np.int64]], rank: int) -> Group:
        name = self.said.group
        return plan.names[name][int(numbers(name)[rank])]


class Record:
    """The batches of one run, in the order in which they were completed.

    Values are kept of the ranks `watched` (None: of all) until they take more than `most` bytes;
    then of none, and `dropped` is true.
    """

    def __init__(self, plan: Plan, most: int, watched: NDArray[np.bool_] | None) -> None:
        """Begin with nothing."""
        self.plan = plan
        self.batches: list[Batch] = []
        self.memory: Memory | None = None
        self.initial: dict[str, Column] = {}
        self.dropped = False
        self._most = most
        self._bytes = 0
        self._watched = watched
        self._of_all = 0
        self._of_each = np.zeros(plan.world_size, np.int64)
        self._last = np.full(plan.world_size, -1, np.int64)
        self._recent: tuple[int, list[int]] | None = None
        self._asked: list[Batch] = []
        self._touching: dict[str, list[Batch]] | None = None

    def add(self, batch: Batch) -> None:
        """Keep a batch."""
        if self._watched is not None or self.dropped:
            batch.changes = self._cut(batch.changes)
        self._bytes += sum(map(_size, batch.changes))
        if self._bytes > self._most:
            self._drop()
            batch.changes = ()
        if batch.active.everyone:
            self._of_all += 1
        else:
            self._of_each[batch.active.ranks] += 1
        self._last[batch.active.index] = len(self.batches)
        if batch.before is not None:
            self._asked.append(batch)
        self.batches.append(batch)

    def _cut(self, changes: tuple[Change, ...]) -> tuple[Change, ...]:
        """Return what of the changes concerns the ranks that are watched."""
        if self.dropped or self._watched is None:
            return ()
        found = []
        for change in changes:
            rows = np.flatnonzero(self._watched[change.active.ranks])
            offsets = change.offsets
            if offsets is not None and len(offsets) > 1:
                offsets = offsets[rows]
            active = change.active.among(self._watched[change.active.ranks])
            found.append(Change(change.name, active, offsets, change.values[rows]))
        return tuple(found)

    def _drop(self) -> None:
        self.dropped = True
        self._bytes = 0
        for batch in self.batches:
            batch.changes = ()

    # ------------------------------------------------------------------ one rank

    def count(self, rank: int) -> int:
        """Return how many steps a rank took."""
        return self._of_all + int(self._of_each[rank])

    def last(self, rank: int) -> Batch | None:
        """Return the batch of a rank's last step."""
        at = int(self._last[rank])
        return None if at < 0 else self.batches[at]

    def of(self, rank: int) -> Iterator[Batch]:
        """Yield the batches in which a rank took part, in its own order."""
        if self._recent is None or self._recent[0] != rank:
            self._recent = (
                rank,
                [at for at, batch in enumerate(self.batches) if _has(batch.active, rank)],
            )
        for at in self._recent[1]:
            yield self.batches[at]

    def asked(self, rank: int) -> Iterator[Batch]:
        """Yield the batches of a rank beside which something is expected."""
        return (batch for batch in self._asked if _has(batch.active, rank))

    def touching(self, name: str, rank: int) -> Iterator[Batch]:
        """Yield the batches of a rank that stored into a name, or may have."""
        if self._touching is None:
            self._touching = {}
            for batch in self.batches:
                for each in {*batch.names, *(change.name for change in batch.changes)}:
                    self._touching.setdefault(each, []).append(batch)
        return (batch for batch in self._touching.get(name, ()) if _has(batch.active, rank))


def _size(change: Change) -> int:
    return change.values.nbytes + (0 if change.offsets is None else change.offsets.nbytes)


def _has(active: Active, rank: int) -> bool:
    if active.everyone:
        return True
    row = int(np.searchsorted(active.ranks, rank))
    return row < active.size and int(active.ranks[row]) == rank
