"""What a verdict is in pytest's terms: a pass, a skip, a failure with our report and its place."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

from runner.report.prose import details, warning_lines

if TYPE_CHECKING:
    from runner.problems import Mark
    from runner.results import Result

ENVIRONMENT = "the environment, not the scenario"

#: the property of an item that could not be judged
INCONCLUSIVE = ("verdict", "INCONCLUSIVE")


class ScenarioFailure(Exception):  # noqa: N818 -- a verdict, not a fault of the program
    """A scenario that did not pass: its report, and a line and a place for pytest's summary."""

    def __init__(self, report: str, summary: str, mark: Mark | None) -> None:
        """Keep the three; the report is what the exception says."""
        super().__init__(report)
        self.summary = summary
        self.mark = mark


class ScenarioWarning(UserWarning):
    """What passes in a scenario and should be looked at; pytest lists and counts it."""


def warn_of(result: Result) -> None:
    """Give each warning of a case to pytest; where it makes errors of them, the case fails."""
    for each in result.verdict.warnings:
        line = each.mark.line if each.mark else 1
        file = each.mark.source.path if each.mark else result.file
        said = ScenarioWarning(f"{each.message} [{each.code}]")
        try:
            warnings.warn_explicit(said, ScenarioWarning, file, line)
        except ScenarioWarning as error:
            lines = [line.printable for line in warning_lines(each)]
            raise ScenarioFailure("\n".join(lines), str(error), each.mark) from None


def raise_unless_passed(result: Result) -> None:
    """Do nothing for a pass, skip what is UNSUPPORTED, raise ScenarioFailure for the rest."""
    verdict = result.verdict
    if verdict.status == "PASSED":
        return
    if verdict.status == "UNSUPPORTED":
        reason = f"UNSUPPORTED: {verdict.reason}"
        raise pytest.skip.Exception(reason, _use_item_location=True)
    raise ScenarioFailure(report_of(result), summary_of(result), _place(result))


def report_of(result: Result) -> str:
    """Return the whole report on a case as plain text, as `scenario run` prints it."""
    verdict = result.verdict
    lines = [line.printable for line in details(result)]
    if verdict.status == "INCONCLUSIVE":
        lines.insert(0, f"{ENVIRONMENT}:")
    return "\n".join(lines) or verdict.status


def summary_of(result: Result) -> str:
    """Return the one line of pytest's summary."""
    verdict = result.verdict
    if verdict.status == "INCONCLUSIVE":
        return f"{ENVIRONMENT}: {verdict.reason}"
    if verdict.problems:
        first = verdict.problems[0]
        place = f"{first.mark}: " if first.mark else ""
        return f"INVALID: {place}{first.message} [{first.code}]"
    if verdict.findings:
        finding = verdict.findings[0]
        return f"{finding.headline}: {finding.prose} [{finding.code}]"
    return verdict.status


def _place(result: Result) -> Mark | None:
    verdict = result.verdict
    marks = [*(each.mark for each in verdict.problems), *(each.mark for each in verdict.findings)]
    return next((mark for mark in marks if mark is not None), None)


def properties_of(result: Result) -> list[tuple[str, object]]:
    """Return what a JUnit report should know of a case: its verdict, and what it ran on."""
    found: list[tuple[str, object]] = [("verdict", result.verdict.status)]
    if result.scenario is not None:
        found.append(("world_size", result.scenario.world_size))
    observed = result.verdict.observed
    if observed is not None:
        found.append(("backend", observed.backend))
        found += [("torch", observed.environment["torch"])] if observed.environment else []
    return found
