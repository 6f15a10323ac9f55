"""(Scenario, Trace) -> Timeline: every event becomes a span, every link a meeting."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runner.operations.base import Collective, GroupCreation, PointToPoint, Waiting
from runner.plan import plan
from runner.scenario import steps_of
from runner.timeline.columns import columns_of
from runner.timeline.faults import edges_of, faults_of
from runner.timeline.handles import Handles
from runner.timeline.meetings import Draft, group_of, settled
from runner.timeline.model import STUCK, Lane, Span, Timeline
from runner.timeline.texts import Texts, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from runner.operations.base import Operation
    from runner.plan import Plan
    from runner.scenario import Scenario, Step
    from runner.timeline.model import At, Kind, Meeting
    from runner.trace import Event, Failure, RankTrace, Trace

_KINDS: tuple[tuple[type[Operation], Kind], ...] = (
    (Collective, "collective"),
    (PointToPoint, "message"),
    (Waiting, "wait"),
    (GroupCreation, "creation"),
)

#: the place in its own sources that a backend's message begins with: `[/src/pair.cc:553] `
_SOURCE_PLACE = re.compile(r"\A\s*\[[^\]\s]*:\d+\]\s*")

#: an instance of a step on a rank: its name, and how often it had come before
Instance = tuple[int, tuple[int, ...], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What the spans of one step have in common."""

    kind: Kind
    operation: str | None
    line: int | None
    place: str | None
    step: Step | None


#: of the groups that a scenario declares: their creation is refused before step 1
_UNKNOWN = _Place(kind="creation", operation=None, line=None, place=None, step=None)


@dataclass(slots=True, kw_only=True)
class _Row:
    """A lane while it is made: each event with the links and the label that the reference gave.

    The events are made once: a trace may build them whenever it is asked.
    """

    trace: RankTrace
    events: tuple[Event, ...]
    initial: Mapping[str, object]
    links: list[tuple[str, ...]] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    waits: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))


def timeline(scenario: Scenario, trace: Trace, predicted: Trace | None) -> Timeline:
    """Return the timeline of a trace.

    `predicted` is the reference's trace of the same case, or `trace` itself: it tells who met whom,
    who waits for whom, and what is wrong. An observed event that it has no counterpart for (a rank
    that came further than the semantics promise) stands alone, and a receive from anyone is shown
    with the sender that the reference's first schedule gives it. No tensor is kept.
    """
    resolved = plan(scenario)
    places = _Places(scenario)
    rows = _rows(trace, predicted)
    completed = _completions(resolved, places, rows)
    meetings = _meetings(resolved, places, rows, completed)
    columns = columns_of([len(row.links) for row in rows], *_constraints(meetings))
    texts = Texts()
    lanes = tuple(_lane(row, places, texts, own) for row, own in zip(rows, columns, strict=True))
    return Timeline(
        file=scenario.source.path,
        case=scenario.case,
        witness="predicted" if trace is predicted else "observed",
        backend=trace.backend,
        outcome=trace.outcome,
        lanes=lanes,
        meetings=tuple(meetings),
        edges=tuple(edges_of(trace, predicted)),
        faults=tuple(faults_of(predicted, places.lines())),
        columns=max((own[-1] + 1 for own in columns if own), default=0),
        duration_s=round(trace.duration_s, 6),
    )


# ---------------------------------------------------------------------------- steps and events


class _Places:
    """The steps of a scenario by their index, as spans name them."""

    def __init__(self, scenario: Scenario) -> None:
        self._path = scenario.source.path
        self._known = {step.index: self._of(step) for step in steps_of(scenario.steps)}

    def __getitem__(self, index: int) -> _Place:
        return self._known.get(index, _UNKNOWN)

    def lines(self) -> dict[int, int | None]:
        """Return each step's line in the scenario's own file."""
        return {index: place.line for index, place in self._known.items()}

    def _of(self, step: Step) -> _Place:
        mark, operation = step.mark, step.operation
        shape = (kind for shape, kind in _KINDS if isinstance(operation, shape))
        own = mark is not None and mark.source.path == self._path
        return _Place(
            kind=next(shape, "expect" if operation is None else "local"),
            operation=operation.name if operation else None,
            line=mark.line if mark and own else None,
            place=mark.short if mark else None,
            step=step,
        )


def _rows(trace: Trace, predicted: Trace | None) -> list[_Row]:
    foreseen = {rank.rank: rank for rank in predicted.ranks} if predicted else {}
    rows = []
    for rank in trace.ranks:
        events = tuple(rank.events)
        source = foreseen.get(rank.rank)
        row = _Row(trace=rank, events=events, initial=rank.initial)
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


def _completions(resolved: Plan, places: _Places, rows: list[_Row]) -> dict[At, At]:
    """Return which `wait` waited for an asynchronous call; fill in what each `wait` completes."""
    completed: dict[At, At] = {}
    for lane, row in enumerate(rows):
        handles = Handles(resolved, row.trace.rank)
        started: dict[str, int] = {}
        for position, event in enumerate(row.events):
            step = places[event.index].step
            if step is None:
                continue
            if step.handle is not None:
                started[step.handle] = position
            if isinstance(step.operation, Waiting):
                for name in handles.of(step):
                    if name in started:
                        completed.setdefault((lane, started[name]), (lane, position))
                        row.waits[position] += row.links[started[name]]
    return completed


# ---------------------------------------------------------------------------- who met whom


def _meetings(
    resolved: Plan, places: _Places, rows: list[_Row], completed: Mapping[At, At]
) -> list[Meeting]:
    drafts: dict[str, Draft] = {}
    for lane, row in enumerate(rows):
        for position, links in enumerate(row.links):
            if not links:
                continue
            event = row.events[position]
            place = places[event.index]
            for name in links:
                draft = drafts.get(name)
                if draft is None:
                    draft = drafts[name] = Draft(name=name, kind=place.kind)
                draft.spans.append((lane, position))
                draft.labels[row.labels[position] or event.label] = None
                draft.operations.add(place.operation)
                draft.stuck = draft.stuck or event.state in STUCK
    order = {name: nth for nth, name in enumerate(drafts)}
    for row in rows:
        row.links = [tuple(sorted(links, key=order.__getitem__)) for links in row.links]
    ranks = [row.trace.rank for row in rows]
    members = _members(resolved)
    return [settled(draft, ranks, completed, members) for draft in drafts.values()]


def _members(resolved: Plan) -> dict[str, tuple[int, ...]]:
    """Return the members of the groups that exist before step 1, by key."""
    found = {group.key: group.ranks for groups in resolved.names.values() for group in groups}
    return {**found, resolved.world.key: resolved.world.ranks}


def _constraints(meetings: list[Meeting]) -> tuple[list[tuple[At, ...]], list[tuple[At, At]]]:
    """Return which spans share a column, and which may not stand before which."""
    together, ordered = [], []
    for meeting in meetings:
        if meeting.kind != "message" or (meeting.complete and meeting.completed == meeting.spans):
            together.append(meeting.spans)
        elif meeting.complete:
            ordered.append((meeting.spans[0], meeting.completed[1]))
    return together, ordered


# ---------------------------------------------------------------------------- lanes


def _lane(row: _Row, places: _Places, texts: Texts, columns: list[int]) -> Lane:
    rank = row.trace
    spans = [
        _span(row, position, places[event.index], texts, columns[position])
        for position, event in enumerate(row.events)
    ]
    return Lane(
        rank=rank.rank,
        spans=tuple(spans),
        initial=texts.all_of(row.initial),
        ending=rank.ending,
        died=rank.died,
    )


def _span(row: _Row, position: int, place: _Place, texts: Texts, column: int) -> Span:
    event, links = row.events[position], row.links[position]
    return Span(
        index=event.index,
        iteration=event.iteration,
        label=row.labels[position] or _label(event, place),
        kind=place.kind,
        operation=place.operation,
        group=group_of(links[0]) if links and place.kind != "creation" else None,
        state=event.state,
        column=column,
        start_s=round(event.start_s, 6),
        end_s=_rounded(event.end_s),
        complete_s=_rounded(event.complete_s),
        line=place.line,
        place=place.place,
        meetings=(*links, *row.waits[position]) if position in row.waits else links,
        values=texts.all_of(event.writes),
        raised=_raised(event.failure),
    )


def _rounded(seconds: float | None) -> float | None:
    """Return a time in whole microseconds, as it is stored."""
    return None if seconds is None else round(seconds, 6)


def _label(event: Event, place: _Place) -> str:
    """Return the label of an event that nobody foresaw; a rank that told nothing gave a number."""
    if event.label == f"step {event.index}" and place.step is not None:
        return place.step.name or place.operation or "expect"
    return event.label


def _raised(failure: Failure | None) -> str | None:
    if failure is None:
        return None
    kinds = " or ".join(failure.kinds)
    words = _SOURCE_PLACE.sub("", failure.message, count=1)
    return shortened(f"{kinds}: {words}") if words else kinds
