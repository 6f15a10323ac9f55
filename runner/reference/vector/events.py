"""The trace of a sweep: events and links that are made when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from runner.reference.vector.values import Lanes, Stack
from runner.trace import Event, RankTrace, Recorded, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from runner.reference.vector.record import Batch, Change, Link, Record
    from runner.trace import Value

#: bytes of values that one replay of the program keeps
REPLAYED = 2**26


class Replays:
    """Values that were too many to keep, computed once more for some ranks at a time."""

    def __init__(self, record: Record, again: Callable[[NDArray[np.bool_]], Record]) -> None:
        """Keep what runs the program again; nothing is run before it is needed."""
        self.record = record
        self._again = again
        self._portion = max(record.plan.world_size // 16, 1)
        self._first = -1
        self._recent = record

    def of(self, rank: int) -> Record:
        """Return a record that has the values of a rank."""
        if not self.record.dropped:
            return self.record
        while self._first < 0 or not self._first <= rank < self._first + self._portion:
            self._first = rank - rank % self._portion
            watched = np.zeros(self.record.plan.world_size, np.bool_)
            watched[self._first : self._first + self._portion] = True
            self._recent = self._again(watched)
            if self._recent.dropped and self._portion > 1:
                self._portion = max(self._portion // 16, 1)
                self._first = -1
        return self._recent


class RankEvents(Recorded):
    """The events of one rank."""

    def __init__(self, replays: Replays, rank: int) -> None:
        """Make no event yet."""
        self._replays = replays
        self._record = replays.record
        self._rank = rank

    def __len__(self) -> int:
        """Return how many steps the rank took."""
        return self._record.count(self._rank)

    @overload
    def __getitem__(self, at: int) -> Event: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Event, ...]: ...
    def __getitem__(self, at: int | slice) -> Event | tuple[Event, ...]:
        """Return one event, or some; the last one is found at once."""
        places = range(len(self))[at]
        if isinstance(places, int):
            return self._last() if places == len(self) - 1 else next(islice(self, places, None))
        if len(places) == 1 and places[0] == len(self) - 1:
            return (self._last(),)
        wanted = set(places)
        made = {place: event for place, event in enumerate(self) if place in wanted}
        return tuple(made[place] for place in places)

    def __iter__(self) -> Iterator[Event]:
        """Yield the events in order, with what their steps stored."""
        record = self._replays.of(self._rank)
        held = {name: value.copy() for name, value in self.initial().items()}
        for batch in record.of(self._rank):
            for change in batch.changes:
                row = _row(change, self._rank)
                _apply(held, change.name, change.offsets, change.values, row)
            writes = {name: held[name].copy() for name in batch.names}
            yield self._event(batch, writes)

    def _last(self) -> Event:
        batch = self._record.last(self._rank)
        assert batch is not None  # noqa: S101 -- there is an event
        held = self.final()
        return self._event(batch, {name: held[name].copy() for name in batch.names})

    def _event(self, batch: Batch, writes: Mapping[str, Value]) -> Event:
        memory = self._record.memory
        assert memory is not None  # noqa: S101 -- the run has come to its end
        row = _row(batch, self._rank)
        slack = {name: values[row, ...].copy() for name, values in (batch.slack or {}).items()}
        seen = {text: _of_row(value, row) for text, value in (batch.observed or {}).items()}
        return Event(
            index=batch.instance.step.index,
            label=batch.label(self._record.plan, memory.group_numbers, self._rank),
            iteration=batch.instance.iteration,
            end_s=0.0,
            writes=writes,
            slack=slack,
            observed=seen,
        )

    # ------------------------------------------------------------------ what the judge asks for

    @property
    def stores(self) -> bool:
        """Whether some step may have stored into something."""
        return any(batch.names for batch in self._record.batches)

    def initial(self) -> dict[str, Value]:
        """Return what the rank held in the beginning."""
        columns = self._record.initial.values()
        return {
            column.name: column.values[self._rank, ...]
            for column in sorted(columns, key=lambda each: each.name)
            if column.held[self._rank]
        }

    def final(self) -> dict[str, Value]:
        """Return what the rank holds in the end."""
        memory = self._record.memory
        assert memory is not None  # noqa: S101 -- the run has come to its end
        return {
            name: column.values[self._rank, ...]
            for name, column in memory.columns.items()
            if column.held[self._rank]
        }

    def program(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the steps that any rank took, in program order."""
        instances = {batch.instance.number: batch.instance for batch in self._record.batches}
        for number in sorted(instances):
            yield instances[number].step.index, instances[number].iteration

    def changes(self, name: str) -> Iterator[tuple[int, tuple[int, ...], Value]]:
        """Yield the steps that may have stored into a name, with what it holds after each."""
        held = {key: value.copy() for key, value in self.initial().items() if key == name}
        for batch in self._replays.of(self._rank).touching(name, self._rank):
            for change in batch.changes:
                if change.name == name:
                    _apply(held, name, change.offsets, change.values, _row(change, self._rank))
            if name in batch.names:
                yield batch.instance.step.index, batch.instance.iteration, held[name].copy()

    def beside(
        self, indexes: frozenset[int]
    ) -> Iterator[tuple[Event, dict[str, Value], dict[str, Value]]]:
        """Yield the events of steps beside which something is expected, with what was held."""
        for batch in self._record.asked(self._rank):
            if batch.instance.step.index in indexes:
                row = _row(batch, self._rank)
                before, after = (_held(found, row) for found in (batch.before, batch.after))
                yield self._event(batch, {name: after[name] for name in batch.names}), before, after


def _row(of: Batch | Change, rank: int) -> int:
    """Return in which row of a batch, or of a change, a rank stands."""
    return rank if of.active.everyone else int(np.searchsorted(of.active.ranks, rank))


def _held(found: Mapping[str, Any] | None, row: int) -> dict[str, Value]:
    return {name: values[row, ...] for name, (values, held) in (found or {}).items() if held[row]}


def _of_row(value: Any, row: int) -> Value:  # noqa: ANN401 -- a value of the sweep
    if isinstance(value, Stack):
        return value.values[row, ...].copy()
    return value.values[row].item() if isinstance(value, Lanes) else value


def _apply(
    held: dict[str, Any],
    name: str,
    offsets: NDArray[np.int64] | None,
    values: NDArray[Any],
    row: int,
) -> None:
    """Lay what a step stored over what a rank held."""
    if offsets is None:
        held[name] = values[row, ...].copy()
    else:
        held[name].reshape(-1)[offsets[row if len(offsets) > 1 else 0]] = values[row, ...]


class RankLinks(Mapping[int, tuple[str, ...]]):
    """The meetings of one rank, by the position of the event."""

    def __init__(self, record: Record, rank: int) -> None:
        """Make none yet."""
        self._record = record
        self._rank = rank
        self._made: dict[int, tuple[str, ...]] | None = None

    def _links(self) -> dict[int, tuple[str, ...]]:
        if self._made is None:
            counts: dict[tuple[Any, ...], int] = {}
            self._made = {
                at: tuple(_named(link, batch, self._rank, counts) for link in batch.said.links)
                for at, batch in enumerate(self._record.of(self._rank))
                if batch.said.links
            }
        return self._made

    def __getitem__(self, at: int) -> tuple[str, ...]:
        """Return the meetings of the event at a position."""
        return self._links()[at]

    def __iter__(self) -> Iterator[int]:
        """Yield the positions of events that met someone."""
        return iter(self._links())

    def __len__(self) -> int:
        """Return how many events met someone."""
        return len(self._links())

    def __eq__(self, other: object) -> bool:
        """Compare by value."""
        return isinstance(other, Mapping) and self._links() == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it holds."""
        return dict, (self._links(),)


def _named(link: Link, batch: Batch, rank: int, counts: dict[tuple[Any, ...], int]) -> str:
    key = link.keys[int(link.numbers[rank])]
    if link.peers is None:
        return f"{key}:{link.position}"
    row = _row(batch, rank)
    peer = int(link.peers[row])
    tag = link.tags if isinstance(link.tags, int) else int(link.tags[row])
    ends = (key, link.sends, peer, tag)
    nth = counts[ends] = counts.get(ends, -1) + 1
    first, second = (rank, peer) if link.sends else (peer, rank)
    return f"{key}:{first}>{second}#{tag}:{nth}"


def trace_of(record: Record, again: Callable[[NDArray[np.bool_]], Record]) -> Trace:
    """Return the trace of a run in which nothing went wrong."""
    replays = Replays(record, again)
    ranks = []
    for rank in range(record.plan.world_size):
        events = RankEvents(replays, rank)
        links = RankLinks(record, rank)
        initial = events.initial()
        ranks.append(RankTrace(rank=rank, initial=initial, events=events, links=links))
    return Trace(backend="reference", outcome="completes", ranks=tuple(ranks))
