"""(Scenario, Trace) -> Timeline: every event becomes a span, every link a meeting."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runner.plan import plan
from runner.timeline.columns import columns_of
from runner.timeline.faults import edges_of, faults_of
from runner.timeline.meetings import Draft, group_of, settled
from runner.timeline.model import STUCK, Lane, Span, Timeline
from runner.timeline.places import Places
from runner.timeline.rows import completions, rows_of
from runner.timeline.texts import Texts, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.plan import Plan
    from runner.scenario import Scenario
    from runner.timeline.model import At, Meeting
    from runner.timeline.places import Place
    from runner.timeline.rows import Row
    from runner.trace import Event, Failure, Trace

#: the place in its own sources that a backend's message begins with: `[/src/pair.cc:553] `
_SOURCE_PLACE = re.compile(r"\A\s*\[[^\]\s]*:\d+\]\s*")


def timeline(scenario: Scenario, trace: Trace, predicted: Trace | None) -> Timeline:
    """Return the timeline of a trace.

    `predicted` is the reference's trace of the same case, or `trace` itself: it tells who met whom,
    who waits for whom, and what is wrong. An observed event that it has no counterpart for (a rank
    that came further than the semantics promise) stands alone, and a receive from anyone is shown
    with the sender that the reference's first schedule gives it. No tensor is kept.
    """
    resolved = plan(scenario)
    places = Places(scenario)
    rows = rows_of(trace, predicted)
    completed = completions(resolved, places, rows)
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


# ---------------------------------------------------------------------------- who met whom


def _meetings(
    resolved: Plan, places: Places, rows: list[Row], completed: Mapping[At, At]
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


def _lane(row: Row, places: Places, texts: Texts, columns: list[int]) -> Lane:
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


def _span(row: Row, position: int, place: Place, texts: Texts, column: int) -> Span:
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


def _label(event: Event, place: Place) -> str:
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
