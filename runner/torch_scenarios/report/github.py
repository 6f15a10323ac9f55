"""Annotations for GitHub Actions: an error on the YAML line, and the rest in the job's summary.

GitHub shows at most ten errors and ten warnings of a step, so no more are written; the summary has
all. Source lines
that the report for people shows could look like workflow commands themselves: GitHub is asked to
read none while a run goes on, and to go on reading at its end.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from torch_scenarios.display import clean
from torch_scenarios.errors import Mark, Problem
from torch_scenarios.pipeline.results import Outcome, Result
from torch_scenarios.report import markdown
from torch_scenarios.report.json import place_of
from torch_scenarios.report.text import details

MOST_ERRORS = 10
MOST_WARNINGS = 10
MOST_CHARACTERS = 4000


class GithubReport:
    """Writes workflow commands to the log, and appends to the summary of the step.

        ::error file=scenarios/a.yaml,line=7::rank 1 never receives it

    The annotation is on the line of the file, in the diff of the pull request that changed it.
    """

    def __init__(self, log: IO[str], environ: Mapping[str, str]) -> None:
        """Write to `log`; where the workspace and the summary are, `environ` says."""
        self._log = log
        self._environ = environ
        self._token = ""

    def begin(self, total: int) -> None:
        """Keep GitHub from reading commands in what the run shows."""
        self._token = secrets.token_hex(16)
        self._write(f"::stop-commands::{self._token}")

    def start(self, case: str) -> None:
        """Write nothing."""

    def finish(self, result: Result) -> None:
        """Write nothing: what is shown meanwhile is no command."""

    def end(self, outcome: Outcome) -> None:
        """Write the errors, the warnings and the summary."""
        self._write(f"::{self._token}::")
        wrong = [r for r in outcome.results if r.verdict.status not in {"PASSED", "UNSUPPORTED"}]
        for result in wrong[:MOST_ERRORS]:
            self._write(annotation(result, self._environ.get("GITHUB_WORKSPACE")))
        for each in outcome.all_warnings[:MOST_WARNINGS]:
            self._write(annotate_warning(each, self._environ.get("GITHUB_WORKSPACE")))
        path = self._environ.get("GITHUB_STEP_SUMMARY")
        if path:
            with Path(path).open("a", encoding="utf-8") as summary:
                summary.write(markdown.text(outcome))

    def _write(self, line: str) -> None:
        self._log.write(f"{line}\n")
        self._log.flush()


def annotation(result: Result, workspace: str | None = None) -> str:
    """Return the workflow command that puts a result on its line of the file."""
    mark = place_of(result)
    file = result.file if mark is None else mark.source.path
    fields = {"file": _find_path(file, workspace)}
    if mark is not None:
        fields |= _span(mark)
    fields["title"] = f"{result.verdict.status} {result.name}"
    properties = ",".join(f"{name}={_property(value)}" for name, value in fields.items())
    lines = "\n".join(line.printable for line in details(result))
    return f"::error {properties}::{_message(lines[:MOST_CHARACTERS] or result.verdict.status)}"


def annotate_warning(warning: Problem, workspace: str | None = None) -> str:
    """Return the workflow command that puts a warning on its line of the file."""
    fields: dict[str, str] = {}
    if warning.mark is not None:
        fields["file"] = _find_path(warning.mark.source.path, workspace)
        fields |= _span(warning.mark)
    fields["title"] = warning.code
    properties = ",".join(f"{name}={_property(value)}" for name, value in fields.items())
    lines = "\n".join(warning.lines("warning"))
    return f"::warning {properties}::{_message(lines[:MOST_CHARACTERS])}"


def _span(mark: Mark) -> dict[str, str]:
    """Return the properties of a place; `endColumn` is its last column: `col` if left out."""
    fields = {"line": str(mark.line), "col": str(mark.column)}
    if mark.end_column is not None and mark.end_line in {None, mark.line}:
        last = max(mark.column, mark.end_column - 1)
        fields |= {"endLine": str(mark.line), "endColumn": str(last)}
    return fields


def _find_path(file: str, workspace: str | None) -> str:
    """Return a path as GitHub wants it, from the root of the repository."""
    if not workspace:
        return file
    relative = os.path.relpath(os.path.realpath(file), os.path.realpath(workspace))
    return file if relative.startswith("..") else relative


def _message(words: str) -> str:
    return clean(words).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(words: str) -> str:
    return _message(words).replace(":", "%3A").replace(",", "%2C")
