"""`--trace FILE`: every case of a run as one Chrome trace; https://ui.perfetto.dev opens it.

The format is the *Trace Event Format* of Chromium's catapult project, in its object form.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runner.report.pictures import timeline
from runner.report.trace_events import Numbers, events_of

if TYPE_CHECKING:
    from typing import TextIO

    from runner.results import Outcome, Result
    from runner.scenario import Scenario


class TraceReport:
    """Writes the events of each case as it comes; nothing of it is kept."""

    def __init__(self, file: TextIO) -> None:
        """Take the open file to write to."""
        self._file = file
        self._numbers = Numbers()
        self._written = 0

    def begin(self, total: int) -> None:
        """Hear it in silence."""

    def running(self, scenario: Scenario) -> None:
        """Hear it in silence."""

    def finish(self, result: Result) -> None:
        """Write what was predicted and what was observed, a process each."""
        scenario, verdict = result.scenario, result.verdict
        if scenario is None:
            return
        for trace in (verdict.predicted, verdict.observed):
            if trace is not None:
                for event in events_of(timeline(scenario, trace, verdict.predicted), self._numbers):
                    self._write(_encoded(event))

    def end(self, outcome: Outcome) -> None:
        """Close the list."""
        del outcome
        self._file.write('\n],"displayTimeUnit":"ms"}\n' if self._written else _EMPTY)

    def _write(self, line: str) -> None:
        self._file.write(",\n" if self._written else '{"traceEvents":[\n')
        self._file.write(line)
        self._written += 1


#: made once: `json.dumps` makes an encoder for each call that is not as by default
_encoded = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

_EMPTY = '{"traceEvents":[],"displayTimeUnit":"ms"}\n'
