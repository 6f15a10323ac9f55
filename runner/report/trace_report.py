"""`--trace FILE`: every case of a run as one Chrome trace; https://ui.perfetto.dev opens it.

The format is the *Trace Event Format* of Chromium's catapult project, in its object form.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runner.display import clean_json
from runner.report.pictures import timeline
from runner.report.trace_events import Numbers, events_of, told

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from runner.report.trace_events import Event
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
        """Write what was predicted and what was observed, a process each; or why there is none."""
        verdict = result.verdict
        name = f"{verdict.status} {result.file}"
        if result.scenario is not None:
            name += f"::{result.case}"
        found = _findings(result)
        named = {"predicted": verdict.predicted, "observed": verdict.observed}
        traces = {witness: trace for witness, trace in named.items() if trace is not None}
        if result.scenario is None or not traces:
            self._write_all(told(name, found, self._numbers, self._numbers.next("pid")))
            return
        for witness, trace in traces.items():
            pid = self._numbers.next("pid")
            how = "logical time" if witness == "predicted" else trace.backend
            title = f"{name} ({witness}, {how}): {trace.outcome}"
            self._write_all(told(title, found, self._numbers, pid))
            drawn = timeline(result.scenario, trace, verdict.predicted)
            self._write_all(events_of(drawn, self._numbers, pid))

    def end(self, outcome: Outcome) -> None:
        """Close the list."""
        del outcome
        self._file.write('\n],"displayTimeUnit":"ms"}\n' if self._written else _EMPTY)

    def _write_all(self, events: Iterable[Event]) -> None:
        text = clean_json(_encoded(list(events)))[
            1:-1
        ]  # at once: far faster than one after the other
        if text:
            self._write(text)

    def _write(self, line: str) -> None:
        self._file.write(",\n" if self._written else '{"traceEvents":[\n')
        self._file.write(line)
        self._written += 1


def _findings(result: Result) -> list[str]:
    """Return what speaks against a case: a headline each, the details on the lines below it."""
    verdict = result.verdict
    found = [
        "\n".join([f"{each.headline}: {each.prose} [{each.code}]", *each.because])
        for each in verdict.findings
    ]
    found += [f"{each.message} [{each.code}]\n{each}" for each in verdict.problems]
    return found + ([verdict.reason] if verdict.reason else [])


#: made once: `json.dumps` makes an encoder for each call that is not as by default
_encoded = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

_EMPTY = '{"traceEvents":[],"displayTimeUnit":"ms"}\n'
