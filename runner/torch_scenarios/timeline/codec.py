"""A timeline as JSON, and back: compact, because a run of 64 ranks has tens of thousands of spans.

What many spans share stands once, in a table, and a span names its row:

    steps       [index, label, kind, operation, group, line, place]
    iterations  [0, 3]: the values of the loop variables, outermost first
    texts       every value, every word
    span        [step, iteration, state, column, start, end, complete, raised, completes, values]

`state`, `raised` and the members of `values` (name, value, name, value, ...) are texts; times are
whole microseconds, null where there is none; `completes` are positions in `meetings` that a `wait`
completed. A match is [name, kind, label, missing, complete, spans, completed], where spans are
flat: lane, position, lane, position. Trailing nulls of a span are left out.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from torch_scenarios.source.documents import DocumentError, convert, decode_json
from torch_scenarios.timeline.model import (
    At,
    DrawnDiagnosis,
    Edge,
    Kind,
    Lane,
    Match,
    StepSpan,
    Timeline,
    Witness,
)

# Timeline -> plain lists and mappings, as :mod:`torch_scenarios.timeline.codec` describes them.

FORMAT = "scenario-timeline"
VERSION = 1


class _Table:
    """Rows that are kept once; a row is named by its position.

    >>> table = _Table()
    >>> table.at("done"), table.at("blocked"), table.at("done"), table.list_rows()
    (0, 1, 0, ['done', 'blocked'])
    """

    def __init__(self) -> None:
        self.rows: dict[Hashable, int] = {}

    def at(self, row: Hashable) -> int:
        return self.rows.setdefault(row, len(self.rows))

    def list_rows(self) -> list[Any]:
        return list(self.rows)


class _Tables:
    """All tables of one timeline; `calls` has by span the matches that it takes part in."""

    def __init__(self, timeline: Timeline) -> None:
        self.steps, self.iterations, self.texts = _Table(), _Table(), _Table()
        self.matches = {match.name: at for at, match in enumerate(timeline.matches)}
        self.calls: dict[At, set[str]] = {}
        for match in timeline.matches:
            for at in match.spans:
                self.calls.setdefault(at, set()).add(match.name)

    def values(self, values: Mapping[str, str]) -> list[int]:
        at = self.texts.at
        return [number for name, text in values.items() for number in (at(name), at(text))]


def pack(timeline: Timeline) -> dict[str, Any]:
    """Return a timeline as plain lists and mappings, ready for JSON.

    64 ranks in 100 steps are 6,400 spans, of which most differ from their neighbours by a rank and
    two times: a row of positions is a tenth of an object with names.
    """
    tables = _Tables(timeline)
    lanes = [
        {
            "rank": lane.rank,
            "ending": lane.ending,
            "died": lane.died,
            **({"host": lane.host} if lane.host else {}),
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
        "steps": tables.steps.list_rows(),
        "iterations": tables.iterations.list_rows(),
        "texts": tables.texts.list_rows(),
        "meetings": [_pack_match(match) for match in timeline.matches],
        "lanes": lanes,
        "edges": [[e.waiter, e.peer, e.because, e.cycle, e.sure] for e in timeline.edges],
        "faults": [[f.name, f.prose, list(f.ranks), f.line, list(f.odd)] for f in timeline.faults],
    }


def _span(tables: _Tables, span: StepSpan, at: At) -> list[Any]:
    """Return the row of one span; nulls at its end are left out."""
    step = (span.index, span.label, span.kind, span.operation, span.group, span.line, span.place)
    calls = tables.calls.get(at, ())
    completes = [tables.matches[name] for name in span.matches if name not in calls]
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


def _pack_match(match: Match) -> list[Any]:
    apart = match.completed != match.spans
    return [
        match.name,
        match.kind,
        match.label,
        list(match.missing),
        match.complete,
        [number for at in match.spans for number in at],
        [number for at in match.completed for number in at] if apart else None,
    ]


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


# Plain lists and mappings -> Timeline: what :mod:`torch_scenarios.timeline.codec` wrote, read back.


class _Step(Struct, array_like=True):
    index: int
    label: str
    kind: Kind
    operation: str | None
    group: str | None
    line: int | None
    place: str | None


class _Span(Struct, array_like=True):
    step: int
    iteration: int
    state: int
    column: int
    start_us: int
    end_us: int | None = None
    complete_us: int | None = None
    raised: int | None = None
    completes: tuple[int, ...] | None = None
    values: tuple[int, ...] | None = None


class _Match(Struct, array_like=True):
    name: str
    kind: Kind
    label: str
    missing: tuple[int, ...]
    complete: bool
    spans: tuple[int, ...]
    completed: tuple[int, ...] | None


class _Lane(Struct):
    rank: int
    ending: str
    died: str | None
    initial: tuple[int, ...]
    spans: list[_Span]
    host: str = ""


class _Packed(Struct):
    file: str
    case: str
    witness: Witness
    backend: str
    outcome: str
    columns: int
    duration_us: int
    steps: list[_Step]
    iterations: list[tuple[int, ...]]
    texts: list[str]
    meetings: list[_Match]
    lanes: list[_Lane]
    edges: list[tuple[int, int, str, bool, bool]]
    faults: list[tuple[str, str, tuple[int, ...], int | None, tuple[int, ...]]]


class TimelineError(ValueError):
    """A text that is no timeline of ours: truncated, of a newer version, something else.

    `scenario show --last` then says to run again, and does not draw half of a picture.
    """


def unpack(found: object) -> Timeline:
    """Return the timeline of what :func:`pack` gave. Raises TimelineError.

    Types and counts are checked by msgspec, positions by looking them up: a file that was cut off
    or edited is refused and never half drawn.
    """
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        message = "this is not a timeline of torch-scenarios"
        raise TimelineError(message)
    version = found.get("version")
    if version != VERSION:
        message = f"this timeline has version {version}; version {VERSION} is read here"
        raise TimelineError(message)
    try:
        return _unpack(convert(found, _Packed))
    except (IndexError, ValueError) as error:  # a position that no table has, half of a pair
        message = f"this timeline is damaged: {error}"
        raise TimelineError(message) from error


def _unpack(found: _Packed) -> Timeline:
    """Return a timeline from its rows.

    A span names the collectives and messages that it is part of, and these name their spans. Only
    one of the two is written; the other is made here.
    """
    matches = tuple(
        Match(
            name=row.name,
            kind=row.kind,
            label=row.label,
            missing=row.missing,
            complete=row.complete,
            spans=_pairs(row.spans),
            completed=_pairs(row.spans if row.completed is None else row.completed),
        )
        for row in found.meetings
    )
    calls: dict[At, list[str]] = {}
    for match in matches:
        for at in match.spans:
            calls.setdefault(at, []).append(match.name)
    lanes = tuple(
        Lane(
            rank=lane.rank,
            ending=lane.ending,
            died=lane.died,
            host=lane.host,
            initial=_read_values(found.texts, lane.initial),
            spans=tuple(
                _read_span(found, calls.get((at, nth), ()), row)
                for nth, row in enumerate(lane.spans)
            ),
        )
        for at, lane in enumerate(found.lanes)
    )
    return Timeline(
        file=found.file,
        case=found.case,
        witness=found.witness,
        backend=found.backend,
        outcome=found.outcome,
        columns=found.columns,
        duration_s=found.duration_us / 1e6,
        matches=matches,
        lanes=lanes,
        edges=tuple(
            Edge(waiter=waiter, peer=peer, because=because, cycle=cycle, sure=sure)
            for waiter, peer, because, cycle, sure in found.edges
        ),
        faults=tuple(
            DrawnDiagnosis(name=name, prose=prose, ranks=ranks, line=line, odd=odd)
            for name, prose, ranks, line, odd in found.faults
        ),
    )


def _read_span(found: _Packed, calls: Sequence[str], row: _Span) -> StepSpan:
    step = found.steps[row.step]
    return StepSpan(
        index=step.index,
        iteration=found.iterations[row.iteration],
        label=step.label,
        kind=step.kind,
        operation=step.operation,
        group=step.group,
        state=found.texts[row.state],
        column=row.column,
        start_s=row.start_us / 1e6,
        end_s=None if row.end_us is None else row.end_us / 1e6,
        complete_s=None if row.complete_us is None else row.complete_us / 1e6,
        line=step.line,
        place=step.place,
        matches=(*calls, *(found.meetings[at].name for at in row.completes or ())),
        values=_read_values(found.texts, row.values or ()),
        raised=None if row.raised is None else found.texts[row.raised],
    )


def _read_values(texts: Sequence[str], flat: Sequence[int]) -> dict[str, str]:
    return {texts[name]: texts[value] for name, value in _pairs(flat)}


def _pairs(flat: Sequence[int]) -> tuple[At, ...]:
    """Return pairs of a flat list.

    >>> _pairs([0, 1, 2, 3])
    ((0, 1), (2, 3))
    """
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def to_json(timeline: Timeline) -> str:
    """Return a timeline as one line of JSON."""
    return json.dumps(pack(timeline), separators=(",", ":"), ensure_ascii=False)


def from_json(text: str) -> Timeline:
    """Return the timeline of a text. Raises TimelineError."""
    try:
        found = decode_json(text)
    except DocumentError as error:
        message = f"this is not JSON, or only a part of it: {error}"
        raise TimelineError(message) from error
    return unpack(found)
