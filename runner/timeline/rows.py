"""The events of each rank, beside what the reference knows of the same instances of steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runner.operations.base import Waiting
from runner.timeline.handles import Handles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from runner.plan import Plan
    from runner.timeline.model import At
    from runner.timeline.places import Places
    from runner.trace import Event, RankTrace, Trace

#: an instance of a step on a rank: its name, and how often it had come before
Instance = tuple[int, tuple[int, ...], int]


@dataclass(slots=True, kw_only=True)
class Row:
    """A lane while it is made: each event with the links and the label that the reference gave.

    The events are made once: a trace may build them whenever it is asked.
    """

    trace: RankTrace
    events: tuple[Event, ...]
    initial: Mapping[str, object]
    links: list[tuple[str, ...]] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    waits: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))


def rows_of(trace: Trace, predicted: Trace | None) -> list[Row]:
    """Return a row for each rank of a trace, with what the reference says of each event."""
    foreseen = {rank.rank: rank for rank in predicted.ranks} if predicted else {}
    rows = []
    for rank in trace.ranks:
        events = tuple(rank.events)
        source = foreseen.get(rank.rank)
        row = Row(trace=rank, events=events, initial=rank.initial)
        rows.append(row)
        if source is rank:
            row.links = [rank.links.get(position, ()) for position in range(len(events))]
            row.labels = [event.label for event in events]
            continue
        known = _known(source) if source else {}
        row.initial = {**(source.initial if source else {}), **rank.initial}
        for instance in _instances(events):
            links, label = known.get(instance, ((), None))
            row.links.append(links)
            row.labels.append(label)
    return rows


def _known(rank: RankTrace) -> dict[Instance, tuple[tuple[str, ...], str | None]]:
    """Return the links and the label of each instance that the reference saw a rank take."""
    events = tuple(rank.events)
    return {
        instance: (rank.links.get(position, ()), events[position].label)
        for position, instance in enumerate(_instances(events))
    }


def _instances(events: Iterable[Event]) -> Iterator[Instance]:
    """Yield the name of each event's instance, alike in prediction and observation."""
    seen: Counter[tuple[int, tuple[int, ...]]] = Counter()
    for event in events:
        key = (event.index, event.iteration)
        yield (*key, seen[key])
        seen[key] += 1


def completions(resolved: Plan, places: Places, rows: list[Row]) -> dict[At, At]:
    """Return which `wait` waited for an asynchronous call; fill in what each `wait` completes."""
    completed: dict[At, At] = {}
    for lane, row in enumerate(rows):
        handles = Handles(resolved, row.trace.rank)
        started: dict[str, list[int]] = {}
        indexed: set[str] = set()
        for position, event in enumerate(row.events):
            step = places[event.index].step
            if step is None:
                continue
            if step.handle is not None:
                if step.handle_index is not None:
                    indexed.add(step.handle)
                kept = started.get(step.handle, []) if step.handle in indexed else []
                started[step.handle] = [*kept, position]
            if isinstance(step.operation, Waiting):
                for name in handles.of(step):
                    for at in started.get(name, ()):
                        completed.setdefault((lane, at), (lane, position))
                        row.waits[position] += row.links[at]
                    if name in indexed:
                        started.pop(name, None)
    return completed
