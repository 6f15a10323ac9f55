"""How the events of one rank travel: in columns, because each by itself takes longer than its step.

A rank writes them, the near side reads them back as a tuple of events. Knows nothing of torch.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, repeat
from math import isnan, nan
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from runner.trace import Event

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: bytes; larger arrays travel by themselves
SMALL = 64 << 10
#: the number of no block: a value that is no small array
ALONE = 0


@dataclass(slots=True)
class Columns:
    """The fields of all events, each field for all events together.

    `kinds` are the different triples of index, label and names written, and `kind` says which of
    them an event is. `written` are the values written, event by event: small arrays of one dtype
    and shape stand in one block, and `block` says in which. `other` are further fields of
    those few events that have any. A time that there is not is NaN.
    """

    kinds: dict[tuple[int, str, tuple[str, ...]], int] = field(default_factory=dict)
    kind: array[int] = field(default_factory=lambda: array("L"))
    iterations: list[tuple[int, ...]] = field(default_factory=list)
    start_s: array[float] = field(default_factory=lambda: array("d"))
    end_s: array[float] = field(default_factory=lambda: array("d"))
    complete_s: array[float] = field(default_factory=lambda: array("d"))
    other: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    block: array[int] = field(default_factory=lambda: array("L"))
    blocks: list[Any] = field(default_factory=lambda: [[]])

    def add(
        self,
        kind: tuple[int, str, tuple[str, ...]],
        iteration: tuple[int, ...],
        times_s: tuple[float, float | None, float | None],
        other: Mapping[str, Any] | None,
    ) -> None:
        """Add an event; `times_s` are when it started, ended and was complete."""
        start_s, end_s, complete_s = times_s
        if other:
            self.other[len(self.kind)] = other
        self.kind.append(self.kinds.setdefault(kind, len(self.kinds)))
        self.iterations.append(iteration)
        self.start_s.append(start_s)
        self.end_s.append(nan if end_s is None else end_s)
        self.complete_s.append(nan if complete_s is None else complete_s)

    def write(self, values: Sequence[Any]) -> None:
        """Add what all events have written, in order."""
        alone: list[Any] = []
        numbers: dict[tuple[Any, tuple[int, ...]], int] = {}
        rows: list[list[Any]] = [alone]
        for value in values:
            number = ALONE
            if isinstance(value, np.ndarray) and value.nbytes <= SMALL:
                number = numbers.setdefault((value.dtype, value.shape), len(rows))
                if number == len(rows):
                    rows.append([])
            rows[number].append(value)
            self.block.append(number)
        self.blocks = [alone, *(np.stack(each) for each in rows[1:])]

    def events(self) -> tuple[Event, ...]:
        """Return the events."""
        kinds, values = tuple(self.kinds), self._values()
        found = []
        for place, kind in enumerate(self.kind):
            index, label, written = kinds[kind]
            end_s, complete_s = self.end_s[place], self.complete_s[place]
            event = Event(
                index=index,
                label=label,
                iteration=self.iterations[place],
                start_s=self.start_s[place],
                end_s=None if isnan(end_s) else end_s,
                complete_s=None if isnan(complete_s) else complete_s,
                writes={name: next(values) for name in written},
                **self.other.get(place, {}),
            )
            found.append(event)
        return tuple(found)

    def _values(self) -> Iterator[Any]:
        """Yield what was written, event by event: an array is a row of its block."""
        alone, *blocks = self.blocks
        rows = [iter(alone), *(map(_row, repeat(block), count()) for block in blocks)]
        return (next(rows[number]) for number in self.block)


def _row(block: Any, row: int) -> Any:  # noqa: ANN401 -- an array
    """Return a row as an array, also where it has no dimension."""
    return block[row, ...]


class Account(Sequence[Event]):
    """The events of one rank: a sequence here, columns on the way, a tuple where they arrive."""

    def __init__(self, columns: Columns) -> None:
        """Hold the columns."""
        self._columns = columns

    @cached_property
    def _events(self) -> tuple[Event, ...]:
        return self._columns.events()

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Event]: ...
    def __getitem__(self, place: int | slice) -> Event | Sequence[Event]:
        """Return the event at a place, or those in a range."""
        return self._events[place]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._columns.kind)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the columns; what comes of it is a tuple."""
        return Columns.events, (self._columns,)
