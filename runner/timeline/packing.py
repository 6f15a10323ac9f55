"""Timeline -> plain lists and mappings, as :mod:`runner.timeline.stored` describes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from runner.timeline.model import At, Meeting, Span, Timeline

FORMAT = "scenario-timeline"
VERSION = 1


class _Table:
    """Rows that are kept once; a row is named by its position."""

    def __init__(self) -> None:
        self.rows: dict[Hashable, int] = {}

    def at(self, row: Hashable) -> int:
        return self.rows.setdefault(row, len(self.rows))

    def listed(self) -> list[Any]:
        return list(self.rows)


class _Tables:
    """All tables of one timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self.steps, self.iterations, self.texts = _Table(), _Table(), _Table()
        self.meetings = {meeting.name: at for at, meeting in enumerate(timeline.meetings)}
        self.calls: dict[At, set[str]] = {}
        for meeting in timeline.meetings:
            for at in meeting.spans:
                self.calls.setdefault(at, set()).add(meeting.name)

    def values(self, values: Mapping[str, str]) -> list[int]:
        at = self.texts.at
        return [number for name, text in values.items() for number in (at(name), at(text))]


def packed(timeline: Timeline) -> dict[str, Any]:
    """Return a timeline as plain lists and mappings, ready for JSON."""
    tables = _Tables(timeline)
    lanes = [
        {
            "rank": lane.rank,
            "ending": lane.ending,
            "died": lane.died,
            "initial": tables.values(lane.initial),
            "spans": [_span(tables, span, (at, nth)) for nth, span in enumerate(lane.spans)],
        }
        for at, lane in enumerate(timeline.lanes)
    ]
    return {
        "format": FORMAT,
        "version": VERSION,
        "file": timeline.file,
        "case": timeline.case,
        "witness": timeline.witness,
        "backend": timeline.backend,
        "outcome": timeline.outcome,
        "columns": timeline.columns,
        "duration_us": _us(timeline.duration_s),
        "steps": tables.steps.listed(),
        "iterations": tables.iterations.listed(),
        "texts": tables.texts.listed(),
        "meetings": [_meeting(meeting) for meeting in timeline.meetings],
        "lanes": lanes,
        "edges": [[e.waiter, e.peer, e.because, e.cycle, e.sure] for e in timeline.edges],
        "faults": [[f.name, f.prose, list(f.ranks), f.line, list(f.odd)] for f in timeline.faults],
    }


def _span(tables: _Tables, span: Span, at: At) -> list[Any]:
    step = (span.index, span.label, span.kind, span.operation, span.group, span.line, span.place)
    calls = tables.calls.get(at, ())
    completes = [tables.meetings[name] for name in span.meetings if name not in calls]
    row: list[Any] = [
        tables.steps.at(step),
        tables.iterations.at(span.iteration),
        tables.texts.at(span.state),
        span.column,
        _us(span.start_s),
        None if span.end_s is None else _us(span.end_s),
        None if span.complete_s is None else _us(span.complete_s),
        None if span.raised is None else tables.texts.at(span.raised),
        completes or None,
        tables.values(span.values) or None,
    ]
    while row[-1] is None:
        row.pop()
    return row


def _meeting(meeting: Meeting) -> list[Any]:
    apart = meeting.completed != meeting.spans
    return [
        meeting.name,
        meeting.kind,
        meeting.label,
        list(meeting.missing),
        meeting.complete,
        [number for at in meeting.spans for number in at],
        [number for at in meeting.completed for number in at] if apart else None,
    ]


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
