"""Plain lists and mappings -> Timeline: what :mod:`runner.timeline.packing` wrote, read back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.timeline.model import Edge, Fault, Lane, Meeting, Span, Timeline
from runner.timeline.packing import FORMAT, VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.timeline.model import At

_SPAN_FIELDS = 10


class TimelineError(ValueError):
    """A text that is no timeline of ours: truncated, of a newer version, something else."""


def unpacked(found: object) -> Timeline:
    """Return the timeline of what :func:`packed` gave. Raises TimelineError."""
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        message = "this is no timeline of scenario-runner"
        raise TimelineError(message)
    version = found.get("version")
    if version != VERSION:
        message = f"this timeline has version {version}; version {VERSION} is read here"
        raise TimelineError(message)
    try:
        return _unpacked(found)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        message = f"this timeline is damaged: {type(error).__name__}: {error}"
        raise TimelineError(message) from error


def _unpacked(found: Mapping[str, Any]) -> Timeline:
    meetings = tuple(_read_meeting(row) for row in found["meetings"])
    calls: dict[At, list[str]] = {}
    for meeting in meetings:
        for at in meeting.spans:
            calls.setdefault(at, []).append(meeting.name)
    iterations = [tuple(row) for row in found["iterations"]]
    names = [meeting.name for meeting in meetings]
    lanes = tuple(
        Lane(
            rank=lane["rank"],
            ending=lane["ending"],
            died=lane["died"],
            initial=_read_values(found["texts"], lane["initial"]),
            spans=tuple(
                _read_span(found, iterations, names, calls.get((at, nth), ()), row)
                for nth, row in enumerate(lane["spans"])
            ),
        )
        for at, lane in enumerate(found["lanes"])
    )
    return Timeline(
        file=found["file"],
        case=found["case"],
        witness=found["witness"],
        backend=found["backend"],
        outcome=found["outcome"],
        columns=found["columns"],
        duration_s=found["duration_us"] / 1e6,
        meetings=meetings,
        lanes=lanes,
        edges=tuple(
            Edge(waiter=waiter, peer=peer, because=because, cycle=cycle, sure=sure)
            for waiter, peer, because, cycle, sure in found["edges"]
        ),
        faults=tuple(
            Fault(name=name, prose=prose, ranks=tuple(ranks), line=line, odd=tuple(odd))
            for name, prose, ranks, line, odd in found["faults"]
        ),
    )


def _read_span(
    found: Mapping[str, Any],
    iterations: Sequence[tuple[int, ...]],
    names: Sequence[str],
    calls: Sequence[str],
    row: list[Any],
) -> Span:
    texts = found["texts"]
    full = [*row, *[None] * (_SPAN_FIELDS - len(row))]
    step, iteration, state, column, start, end, complete, raised, completes, values = full
    index, label, kind, operation, group, line, place = found["steps"][step]
    return Span(
        index=index,
        iteration=iterations[iteration],
        label=label,
        kind=kind,
        operation=operation,
        group=group,
        state=texts[state],
        column=column,
        start_s=start / 1e6,
        end_s=None if end is None else end / 1e6,
        complete_s=None if complete is None else complete / 1e6,
        line=line,
        place=place,
        meetings=(*calls, *(names[at] for at in completes or ())),
        values=_read_values(texts, values or ()),
        raised=None if raised is None else texts[raised],
    )


def _read_values(texts: Sequence[str], flat: Sequence[int]) -> dict[str, str]:
    return {texts[name]: texts[value] for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _read_meeting(row: list[Any]) -> Meeting:
    name, kind, label, missing, complete, spans, completed = row
    return Meeting(
        name=name,
        kind=kind,
        label=label,
        missing=tuple(missing),
        complete=complete,
        spans=_pairs(spans),
        completed=_pairs(spans if completed is None else completed),
    )


def _pairs(flat: Sequence[int]) -> tuple[At, ...]:
    return tuple(zip(flat[::2], flat[1::2], strict=True))
