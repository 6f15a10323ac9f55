"""The trace of many ranks at once, in columns: events and links are made when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from torch_scenarios.expressions.lanes import take_row
from torch_scenarios.expressions.values import PerRank, names_of
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.scenario import Expectation, Step
from torch_scenarios.model.trace import Event, Events, Place, RankTrace, Trace, Value
from torch_scenarios.model.traffic import Traffic
from torch_scenarios.operations.base import Entry, GroupCreation
from torch_scenarios.reference.matching import Work
from torch_scenarios.reference.state import Ledger, count_held_bytes, frozen, links_of
from torch_scenarios.reference.vector.call import (
    CallDescription,
    Change,
    Instance,
    Link,
    PostColumn,
)
from torch_scenarios.reference.vector.cohort import (
    ActiveRanks,
    Column,
    LetBindings,
    Scene,
    argument_of,
    make_list,
    stay_small,
)
from torch_scenarios.reference.vector.matching import Calls
from torch_scenarios.reference.vector.state import Flights, Memory

# -------------------------------------------------------------------------------------------------
# What happened, kept in columns: which ranks took which step, and what that changed.
#
# Millions of events would fill the memory many times over, and hardly one of them is looked at. So
# an event is made when it is asked for, out of the column of its step.


class Batch(Struct, eq=False):
    """One step, taken by some ranks at once: an event for each of them.

    `names` are those that it may have stored into; `slack` and `observed` as in an event, for each
    row. Where something is expected beside it, `before` and `after` are what its ranks held.
    """

    instance: Instance
    active: ActiveRanks
    names: tuple[str, ...]
    description: CallDescription
    changes: tuple[Change, ...] = ()
    slack: Mapping[str, NDArray[Any]] | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    observed: Mapping[str, Any] | None = None

    def label(self, memory: Memory, rank: int) -> str:
        """Return the label of a rank's event."""
        step = self.instance.step
        if step.name is not None:
            return step.name
        if step.operation is None:
            return "expect"
        return step.operation.label(self.entry(memory, rank))

    def entry(self, memory: Memory, rank: int) -> Entry:
        """Return a rank's part in the call, as far as its label shows it."""
        assert self.instance.step.operation is not None
        row = int(self.active.rows(np.asarray([rank]))[0])
        arguments = {param.name: None for param in self.instance.step.operation.params}
        arguments |= {
            name: argument_of(value, row) for name, value in self.description.arguments.items()
        }
        group = memory.group(self.description.group, rank)
        assert group is not None
        return Entry(rank=rank, group=group, arguments=arguments)


#: different sets of ranks that took steps together, up to which ranks are found that took the same
APART = 1_024


class ColumnRecord:
    """The batches of one run, in the order in which they were completed.

    Values are kept of the ranks `watched` (None: of all) until they take more than `most` bytes;
    then of none, and `dropped` is true.
    """

    def __init__(self, plan: Plan, most: int, watched: NDArray[np.bool_] | None) -> None:
        """Begin with nothing."""
        self.plan = plan
        self.batches: list[Batch] = []
        self.memory: Memory | None = None
        self.numbers: Mapping[str, LetBindings] = {}
        self.traffic = Traffic(plan.world_size)
        self.initial: dict[str, Column] = {}
        #: what names hold in no column, from beginning to end, by rank
        self.ragged: Mapping[str, Sequence[Any]] = {}
        self.dropped = False
        #: the creations of groups
        self.creations: list[Batch] = []
        self._most = most
        self._bytes = 0
        self._watched = watched
        self._of_all = 0
        self._of_each = np.zeros(plan.world_size, np.int64)
        self._read_last = np.full(plan.world_size, -1, np.int64)
        self._recent: tuple[int, list[int]] | None = None
        self._asked: list[Batch] = []
        self._touching: dict[str, list[Batch]] | None = None
        self._alike: list[bytes | int] | None = None
        self._places: dict[bytes | int, list[Place]] = {}

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
        self._read_last[batch.active.index] = len(self.batches)
        if batch.before is not None:
            self._asked.append(batch)
        if isinstance(batch.instance.step.operation, GroupCreation):
            self.creations.append(batch)
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
            found.append(Change(change.name, active, offsets, change.values[rows], change.listed))
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
        at = int(self._read_last[rank])
        return None if at < 0 else self.batches[at]

    def of(self, rank: int) -> Iterator[Batch]:
        """Yield the batches in which a rank took part, in its own order."""
        if self._recent is None or self._recent[0] != rank:
            self._recent = (
                rank,
                [at for at, batch in enumerate(self.batches) if batch.active.has(rank)],
            )
        for at in self._recent[1]:
            yield self.batches[at]

    def places(self, rank: int) -> list[Place]:
        """Return the step instances that a rank took: one list for all ranks that took the same."""
        if self._alike is None:
            self._alike = self._sorts()
        sort = self._alike[rank]
        if sort not in self._places:
            instances = (batch.instance for batch in self.of(rank))
            self._places[sort] = [(each.step.index, each.iteration) for each in instances]
        return self._places[sort]

    def _sorts(self) -> list[bytes | int]:
        """Return what ranks that took the same steps have in common: they were among the same."""
        parts = [batch.active.ranks for batch in self.batches if not batch.active.everyone]
        apart = {ranks.tobytes(): ranks for ranks in parts}
        if len(apart) > APART:
            return list(range(self.plan.world_size))
        among = np.zeros((self.plan.world_size, len(apart)), np.bool_)
        for at, ranks in enumerate(apart.values()):
            among[ranks, at] = True
        return [row.tobytes() for row in np.packbits(among, axis=1)]

    def find_asked(self, rank: int) -> Iterator[Batch]:
        """Yield the batches of a rank beside which something is expected."""
        return (batch for batch in self._asked if batch.active.has(rank))

    def find_touching(self, name: str, rank: int) -> Iterator[Batch]:
        """Yield the batches of a rank that stored into a name, or may have."""
        if self._touching is None:
            self._touching = {}
            for batch in self.batches:
                for each in {*batch.names, *(change.name for change in batch.changes)}:
                    self._touching.setdefault(each, []).append(batch)
        return (batch for batch in self._touching.get(name, ()) if batch.active.has(rank))


def _size(change: Change) -> int:
    return change.values.nbytes + (0 if change.offsets is None else change.offsets.nbytes)


# -------------------------------------------------------------------------------------------------
# The trace of a sweep: events and links that are made when they are asked for.

#: what a rank holds of models where the program has none
NO_MODELS: Mapping[str, Value] = {}


class Replays:
    """Values that were too many to keep, computed once more for some ranks at a time.

    A run of 1,024 ranks with 7 million steps stores 7 million tensors. Kept up to a bound, they are
    dropped beyond it, and the few ranks that someone looks at are run again with their values
    watched: a sixteenth of the world at once, and fewer where that is still too much. All ranks
    take part in such a run, for what one holds comes from the others.
    """

    def __init__(
        self, record: ColumnRecord, again: Callable[[NDArray[np.bool_]], ColumnRecord]
    ) -> None:
        """Keep what runs the program again; nothing is run before it is needed."""
        self.record = record
        self._again = again
        self._portion = max(record.plan.world_size // 16, 1)
        self._first = -1
        self._recent = record

    def of(self, rank: int) -> ColumnRecord:
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


class ColumnEvents(Events):
    """The events of one rank: those in columns, and after them its own, to which more may come.

    `models` is what the rank holds of models from beginning to end of the columns.

    An :class:`torch_scenarios.model.trace.Event` is made when it is asked for by its position, from
    the row of the rank in the batch. A report of one rank of 1,024 makes 1,024 times fewer.
    """

    def __init__(
        self,
        replays: Replays,
        rank: int,
        own: Iterable[Event] = (),
        models: Mapping[str, Value] = NO_MODELS,
    ) -> None:
        """Make no event yet."""
        super().__init__(own)
        self._models = models
        self._replays = replays
        self._record = replays.record
        self._rank = rank
        self.past = self._record.count(rank)

    def copy(self) -> ColumnEvents:
        """Return the same events, to be added to apart."""
        return ColumnEvents(self._replays, self._rank, self._own, self._models)

    def links(self, works: Sequence[Work]) -> RankLinks:
        """Return the ranks that this one met: those in columns, and those of its works."""
        return RankLinks(self._record, self._rank, works)

    def together(self) -> Iterator[Event]:
        """Yield the events in columns in order, with what their steps stored."""
        record = self._replays.of(self._rank)
        held = _Held(self._record.initial.values(), self._rank)
        for batch in record.of(self._rank):
            for change in batch.changes:
                held.lay(change)
            yield self._event(batch, {name: held.copy(name) for name in batch.names})

    def _one(self, at: int) -> Event:
        return self._read_last() if at == self.past - 1 else super()._one(at)

    def _read_last(self) -> Event:
        batch = self._record.last(self._rank)
        assert batch is not None
        held = self._find_held()
        return self._event(batch, {name: frozen(held[name]) for name in batch.names})

    def _event(self, batch: Batch, writes: Mapping[str, Value]) -> Event:
        memory = self._record.memory
        assert memory is not None
        row = batch.active.row(self._rank)
        slack = {name: values[row, ...].copy() for name, values in (batch.slack or {}).items()}
        seen = {text: _take_row(value, row) for text, value in (batch.observed or {}).items()}
        return Event(
            index=batch.instance.step.index,
            label=batch.label(memory, self._rank),
            iteration=batch.instance.iteration,
            end_s=0.0,
            writes=writes,
            slack=slack,
            observed=seen,
        )

    # ------------------------------------------------------------------ what is asked for

    @property
    def stores(self) -> bool:
        """Whether some step may have stored into something."""
        return any(batch.names for batch in self._record.batches) or super().stores

    def initial(self) -> dict[str, Value]:
        """Return what the rank held in the beginning."""
        columns = self._record.initial.values()
        found = {each.name: each.own(self._rank) for each in columns if each.held[self._rank]}
        return dict(sorted({**found, **self._find_ragged()}.items()))

    def _find_ragged(self) -> dict[str, Value]:
        """Return what the rank holds in no column."""
        values = {name: each[self._rank] for name, each in self._record.ragged.items()}
        held = {name: value for name, value in values.items() if value is not None}
        return {**self._models, **held}

    def _find_held(self) -> dict[str, Value]:
        """Return what the rank held after the events in columns."""
        memory = self._record.memory
        assert memory is not None
        columns = memory.columns.items()
        found = {name: each.own(self._rank) for name, each in columns if each.held[self._rank]}
        return {**found, **self._find_ragged()}

    def final(self) -> dict[str, Value]:
        """Return what the rank holds in the end."""
        return {**self._find_held(), **super().final()}

    def program(self) -> Iterator[Place]:
        """Yield the steps that any rank took in columns, in program order."""
        instances = {batch.instance.number: batch.instance for batch in self._record.batches}
        for number in sorted(instances):
            yield instances[number].step.index, instances[number].iteration

    def places(self) -> Sequence[Place]:
        """Return the steps that the rank took together with others."""
        return self._record.places(self._rank)

    def changes(self, name: str) -> Iterator[tuple[int, tuple[int, ...], Value]]:
        """Yield the steps that may have stored into a name, with what it holds after each."""
        columns = [each for each in self._record.initial.values() if each.name == name]
        held = _Held(columns, self._rank)
        for batch in self._replays.of(self._rank).find_touching(name, self._rank):
            for change in batch.changes:
                if change.name == name:
                    held.lay(change)
            if name in batch.names:
                yield batch.instance.step.index, batch.instance.iteration, held.copy(name)
        yield from super().changes(name)

    def visit(
        self, indexes: frozenset[int], initial: Mapping[str, Value]
    ) -> Iterator[tuple[Event, dict[str, Value], dict[str, Value]]]:
        """Yield the events of steps beside which something is expected, with what was held."""
        for batch in self._record.find_asked(self._rank):
            if batch.instance.step.index in indexes:
                row = batch.active.row(self._rank)
                before, after = (_read_held(found, row) for found in (batch.before, batch.after))
                yield self._event(batch, {name: after[name] for name in batch.names}), before, after
        yield from super().visit(indexes, {**initial, **self._find_held()})


def _read_held(found: Mapping[str, Any] | None, row: int) -> dict[str, Value]:
    return {
        name: make_list(values[row, ...], is_list)
        for name, (values, held, is_list) in (found or {}).items()
        if held[row]
    }


def find_looked_at(expect: Expectation) -> frozenset[str]:
    """Return every name that an expectation may read."""
    bounds: list[Any] = [expect.elapsed]
    if isinstance(expect.elapsed, PerRank):
        bounds = [each for _, each in expect.elapsed.branches] + [expect.elapsed.otherwise]
        found = [names_of(selector.form) for selector, _ in expect.elapsed.branches]
    else:
        found = []
    for bound in bounds:
        if bound is not None:
            found += [names_of(bound.min_s), names_of(bound.max_s)]
    for value in expect.values:
        found += [value.key.names, value.key.before, names_of(value.wanted)]
    return frozenset().union(*found)


def _take_row(value: Any, row: int) -> Value:
    found: Value = take_row(value, row)
    return found.copy() if isinstance(found, np.ndarray) else found


class _Held:
    """What a rank held, as steps change it."""

    def __init__(self, columns: Iterable[Column], rank: int) -> None:
        """Begin with what the rank held in the beginning."""
        self._rank = rank
        here = [column for column in columns if column.held[rank]]
        self._values = {column.name: column.values[rank, ...].copy() for column in here}
        self._listed = {column.name: column.listed for column in here}

    def lay(self, change: Change) -> None:
        """Lay what a step stored over what the rank held."""
        name, offsets, row = change.name, change.offsets, change.active.row(self._rank)
        if offsets is None:
            self._values[name] = change.values[row, ...].copy()
            self._listed[name] = change.listed
        else:
            place = offsets[row if len(offsets) > 1 else 0]
            self._values[name].reshape(-1)[place] = change.values[row, ...]

    def copy(self, name: str) -> Value:
        """Return a copy of what a name holds."""
        return cast("Value", make_list(self._values[name].copy(), self._listed[name]))


class RankLinks(Mapping[int, tuple[str, ...]]):
    """The matches of one rank, by the position of the event: in columns, and of its works.

    The texts are those of the walk (`world:2`, `world:0>1#7:0`): the n-th message between two ends
    is counted here, while the batches are gone through, and not while ranks run.
    """

    def __init__(self, record: ColumnRecord, rank: int, works: Sequence[Work] = ()) -> None:
        """Make none yet."""
        self._record = record
        self._rank = rank
        self._works = works
        self._made: dict[int, tuple[str, ...]] | None = None

    def _links(self) -> dict[int, tuple[str, ...]]:
        if self._made is None:
            found = self._index_columns()
            for at, links in links_of([work for work in self._works if work.at >= 0]).items():
                found[at] = (*found.get(at, ()), *links)
            self._made = found
        return self._made

    def _index_columns(self) -> dict[int, tuple[str, ...]]:
        counts: dict[tuple[Any, ...], int] = {}
        begun = {
            (work.call.step.index, work.call.iteration): work for work in self._works if work.at < 0
        }
        found = {}
        for at, batch in enumerate(self._record.of(self._rank)):
            if not batch.description.links:
                continue
            found[at] = tuple(
                _name_link(link, batch, self._rank, counts) for link in batch.description.links
            )
            work = begun.get((batch.instance.step.index, batch.instance.iteration))
            if work is not None:
                found[at] = tuple(
                    name if post.past else post.link
                    for name, post in zip(found[at], work.posts, strict=True)
                )
        return found

    def __getitem__(self, at: int) -> tuple[str, ...]:
        """Return the matches of the event at a position."""
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


def _name_link(link: Link, batch: Batch, rank: int, counts: dict[tuple[Any, ...], int]) -> str:
    ends = link.ends(batch, rank)
    if ends is None:
        return f"{link.keys[int(link.numbers[rank])]}:{link.position}"
    key, sends, peer, tag = ends
    nth = counts[ends] = counts.get(ends, -1) + 1
    first, second = (rank, peer) if sends else (peer, rank)
    return f"{key}:{first}>{second}#{tag}:{nth}"


def trace_of(record: ColumnRecord, again: Callable[[NDArray[np.bool_]], ColumnRecord]) -> Trace:
    """Return the trace of a run in which nothing went wrong."""
    replays = Replays(record, again)
    ranks = []
    for rank in range(record.plan.world_size):
        events = ColumnEvents(replays, rank)
        links = RankLinks(record, rank)
        initial = events.initial()
        named = {name: value.of(rank) for name, value in record.numbers.items()}
        numbers = {name: value for name, value in named.items() if value is not None}
        ranks.append(
            RankTrace(rank=rank, initial=initial, events=events, links=links, numbers=numbers)
        )
    return Trace(
        backend="reference", outcome="completes", ranks=tuple(ranks), traffic=record.traffic
    )


# -------------------------------------------------------------------------------------------------
# What is kept of a step that ranks took: what they stored, and what is expected beside it.


class RecordWriter:
    """Writes the record of a run.

    A batch is written when its ranks return from a step, not when they begin it, so that the
    batches of a rank are its events in order. Where ranks return at different times, they are
    several batches.
    """

    def __init__(
        self, memory: Memory, flights: Flights, calls: Calls, record: ColumnRecord, ledger: Ledger
    ) -> None:
        """Begin with nothing noted."""
        self._ledger = ledger
        self._memory = memory
        self._flights = flights
        self._calls = calls
        self._record = record
        #: what went between the ranks
        self.traffic = record.traffic
        #: bytes that are kept for what is expected beside steps
        self._beside = 0

    def finish(self, scene: Scene, posts: Iterable[PostColumn], rows: Any) -> None:
        """Note that ranks return from a step which completes rows of posts."""
        for post in posts:
            if post.number >= 0:
                self.traffic.finish(scene.active.ranks, post.number, rows)

    def before(self, step: Step, scene: Scene, names: tuple[str, ...]) -> dict[str, Any] | None:
        """Return what the ranks hold, where something is expected beside the step."""
        if step.expect is None:
            return None
        return self._read_held(step.expect, names, scene.active)

    def _read_held(
        self, expect: Expectation, stored: tuple[str, ...], active: ActiveRanks
    ) -> dict[str, Any]:
        """Return what the ranks hold in the names that a step stores into, or is asked about."""
        found = {}
        names = find_looked_at(expect).union(stored)
        self._memory.check_ragged(names)
        for name, column in self._memory.columns.items():
            if name in names:
                values = np.array(column.values[active.index])
                self._beside += values.nbytes
                found[name] = (values, column.held[active.index].copy(), column.listed)
        stay_small(self._beside)
        return found

    def note(
        self,
        instance: Instance,
        scene: Scene,
        description: CallDescription,
        names: tuple[str, ...] = (),
        changes: tuple[Change, ...] = (),
        *,
        slack: Mapping[str, Any] | None = None,
        before: dict[str, Any] | None = None,
    ) -> None:
        """Note that ranks took a step."""
        if slack:
            self._ledger.keep_bytes(sum(map(count_held_bytes, slack.values())), instance.step.mark)
        for name in names:
            column = self._memory.columns.get(name)
            self._flights.check_look(name, scene.active)
            if column is not None:
                each = column.values.nbytes // len(column.values)
                self._ledger.hold(scene.active.size * each)
        batch = Batch(instance, scene.active, names, description, changes, slack or None)
        if instance.step.expect is not None:
            looked_at = find_looked_at(instance.step.expect)
            for name in looked_at:
                self._flights.check_look(name, scene.active)
            batch.after = self._read_held(instance.step.expect, names, scene.active)
            batch.observed = self._calls.observe(instance.step, scene, looked_at)
            batch.before = batch.after if before is None else before
        self._record.add(batch)


class TrafficWriter(RecordWriter):
    """Writes down what went between ranks alone: of hollow tensors there is nothing to compare.

    It is the record of :func:`torch_scenarios.reference.vector.footprint.footprint`.
    """

    def before(self, step: Step, scene: Scene, names: tuple[str, ...]) -> dict[str, Any] | None:
        """Return nothing: no value is looked at."""
        return None

    def note(
        self,
        instance: Instance,
        scene: Scene,
        description: CallDescription,
        names: tuple[str, ...] = (),
        changes: tuple[Change, ...] = (),
        *,
        slack: Mapping[str, Any] | None = None,
        before: dict[str, Any] | None = None,
    ) -> None:
        """Note nothing: the traffic has it."""
