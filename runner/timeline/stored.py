"""A timeline as JSON, and back: compact, because a run of 64 ranks has tens of thousands of spans.

What many spans share stands once, in a table, and a span names its row:

    steps       [index, label, kind, operation, group, line, place]
    iterations  [0, 3]: the values of the loop variables, outermost first
    texts       every value, every word
    span        [step, iteration, state, column, start, end, complete, raised, completes, values]

`state`, `raised` and the members of `values` (name, value, name, value, ...) are texts; times are
whole microseconds, null where there is none; `completes` are positions in `meetings` that a `wait`
completed. A meeting is [name, kind, label, missing, complete, spans, completed], where spans are
flat: lane, position, lane, position. Trailing nulls of a span are left out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runner.timeline.packing import packed
from runner.timeline.unpacking import TimelineError, unpacked

if TYPE_CHECKING:
    from runner.timeline.model import Timeline


def to_json(timeline: Timeline) -> str:
    """Return a timeline as one line of JSON."""
    return json.dumps(packed(timeline), separators=(",", ":"), ensure_ascii=False)


def from_json(text: str) -> Timeline:
    """Return the timeline of a text. Raises TimelineError."""
    try:
        found = json.loads(text)
    except ValueError as error:
        message = f"this is no JSON, or a part of one: {error}"
        raise TimelineError(message) from error
    return unpacked(found)
