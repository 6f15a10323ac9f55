"""The reports of a command: opened, told, ended; the exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

import click

from torch_scenarios.cli.options import INCONCLUSIVE_EXIT, refuse
from torch_scenarios.display import clean
from torch_scenarios.errors import LaunchError, ScenarioError
from torch_scenarios.pipeline.interruption import handle_interrupts
from torch_scenarios.pipeline.results import Outcome, Report
from torch_scenarios.pipeline.selection import place_of
from torch_scenarios.report.formats import FORMATS, Format
from torch_scenarios.report.output import STANDARD_OUTPUT, Reports
from torch_scenarios.report.terminal import TerminalReport
from torch_scenarios.report.text import StepValues

#: the report that shows the values at the lines that the command line names
STEP_VALUES = "the values at a line"


def report(
    options: Mapping[str, Any],
    conduct: Callable[[Reports], Outcome],
    *,
    keepers: Mapping[str, Report] | None = None,
) -> NoReturn:
    """Open every report, let `conduct` run and tell them, end them, leave with the exit code.

    A report that cannot be written is reported before anything runs; what ends the run early (a
    command line that makes no sense, an environment that starts nothing) leaves no report behind.
    `keepers` are told as well and write no report.

    Where nothing more can be written to standard output the reports are written all the same. The
    exit code is the verdict's if the reader has left (`| head`); it is 3 where a report is lost, or
    where everything passed and that could not be said.
    """
    with handle_interrupts():
        _report(options, conduct, keepers=keepers)


def _report(
    options: Mapping[str, Any],
    conduct: Callable[[Reports], Outcome],
    *,
    keepers: Mapping[str, Report] | None,
) -> NoReturn:
    """Run a command with its reports open, and end the process with its exit code."""
    terminal = _terminal(options)
    beside = _make_further_reports(options, terminal)
    others = {**beside, **(keepers or {})}
    try:
        with Reports(terminal, others).open(_list_wanted(options)) as reports:
            reports.traces = reports.traces or STEP_VALUES in others
            reports.costs = reports.costs or terminal.verbose
            reports.endings = reports.endings or terminal.verbose or bool(beside)
            outcome = conduct(reports)
            reports.end(outcome)
            failures, lost = reports.failures, reports.lost
    except ScenarioError as error:
        refuse(error)
    except LaunchError as error:
        terminal.close()
        click.echo(clean(str(error)), err=True)
        sys.exit(INCONCLUSIVE_EXIT)
    finally:
        with suppress(OSError):
            terminal.close()
    for failure in failures:
        click.echo(clean(failure), err=True)
    code = outcome.exit_code
    if lost or (failures and code == 0):
        code = max(code, INCONCLUSIVE_EXIT)
    sys.exit(code)


def _list_wanted(options: Mapping[str, Any]) -> list[tuple[Format, str]]:
    """Return the reports that options ask for, each with its path."""
    chosen = ((kind, options.get(kind.parameter)) for kind in FORMATS)
    return [(kind, path) for kind, path in chosen if path]


def _terminal(options: Mapping[str, Any]) -> TerminalReport:
    """Return the report for people: on standard output, unless another one goes there."""
    taken = any(path == STANDARD_OUTPUT for _, path in _list_wanted(options))
    taken = taken or options.get("text_on_output", False)
    file = sys.stderr if taken else sys.stdout
    if options["verbose"] and options["quiet"]:
        message = "--verbose and --quiet exclude each other"
        raise click.UsageError(message)
    command = click.get_current_context().info_name
    return TerminalReport(
        file,
        verbose=options["verbose"],
        durations=options["durations"],
        brief=options["quiet"],
        again=command if command in {"run", "check"} else "",
        paths=options.get("paths", ()),
        launches=options.get("jobs", 1) if command == "run" and not options["dry_run"] else 0,
        folds=not options["verbose"],
    )


def _make_further_reports(
    options: Mapping[str, Any], terminal: TerminalReport
) -> dict[str, Report]:
    """Return the reports that go where the one for people goes."""
    found: dict[str, Report] = {}
    lines: dict[str, list[int]] = {}
    for place in map(place_of, options.get("paths", ())):
        if place.line is not None:
            lines.setdefault(place.path, []).append(place.line)
    if lines:
        found[STEP_VALUES] = StepValues(terminal.print, lines)
        terminal.names_passed, terminal.folds = True, False  # the values of a case are below it
    wanted = options["github"]
    if wanted is None:
        wanted = os.environ.get("GITHUB_ACTIONS") == "true"
    if wanted:
        from torch_scenarios.report.github import GithubReport

        found["--github"] = GithubReport(terminal.file, os.environ)
    return found
