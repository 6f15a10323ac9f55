"""A run -> one HTML file. Every case is packed as it comes, so that no trace outlives its case."""

from __future__ import annotations

import zlib
from importlib import metadata
from typing import TYPE_CHECKING

from runner.report.html.case import body, head, text
from runner.report.html.page import page
from runner.report.json_report import environment
from runner.report.terminal import summary_lines

if TYPE_CHECKING:
    from typing import TextIO

    from runner.results import Outcome, Result
    from runner.scenario import Scenario


class HtmlReport:
    """Listens to a run and writes one page that holds all of it.

    The page's data are lines of JSON: a head and a body for each case, then what concerns the whole
    run. They are compressed as they come, as one stream, so that a run of any length costs no more
    memory than its page, and what cases have in common (a file's text) is stored once.
    """

    def __init__(self, file: TextIO) -> None:
        """Write to `file`."""
        self._file = file
        self._stream = zlib.compressobj(9)
        self._packed: list[bytes] = []
        self._diagnoses: dict[str, None] = {}

    def begin(self, total: int) -> None:
        """Nothing is written before the end."""

    def running(self, scenario: Scenario) -> None:
        """Nothing is written before the end."""

    def finish(self, result: Result) -> None:
        """Keep what the page shows of a case."""
        self._add(text(head(result)))
        self._add(text(body(result)) if result.page is None else result.page)
        predicted = result.verdict.predicted
        if predicted is not None:
            self._diagnoses.update(dict.fromkeys(each.name for each in predicted.diagnoses))

    def end(self, outcome: Outcome) -> None:
        """Write the page."""
        summary = summary_lines(outcome)[-1].printable
        run = {
            "version": metadata.version("scenario-runner"),
            "summary": summary,
            "environment": environment(outcome),
            "interrupted": outcome.interrupted,
            "explanations": _explanations(self._diagnoses),
        }
        self._add(text(run))
        self._packed.append(self._stream.flush())
        self._file.write(page(f"{summary} · scenario", b"".join(self._packed)))

    def _add(self, line: str) -> None:
        self._packed.append(self._stream.compress(line.encode(errors="replace") + b"\n"))


def _explanations(names: dict[str, None]) -> dict[str, dict[str, str]]:
    """Return what `scenario explain` says of the diagnoses in a run, without its examples."""
    from runner.explanations import EXPLANATIONS  # noqa: PLC0415 -- only where one is needed

    return {
        name: {"what": each.what, "why": each.why, "fix": each.fix}
        for name in sorted(names)
        if (each := EXPLANATIONS.get(name)) is not None
    }
