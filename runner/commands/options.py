"""What several commands have in common: paths, selection, parameters, bounds, reports."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from runner.commands.bounds import bounding
from runner.commands.grouping import HOW, REPORTS, WHICH, option
from runner.display import clean
from runner.interruption import handled
from runner.language.limits import Limits
from runner.problems import LaunchError, ScenarioError
from runner.report.formats import FORMATS
from runner.report.several import Reports
from runner.report.target import STANDARD_OUTPUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from runner.pipeline import Outcome, Selection
    from runner.report.formats import Format
    from runner.report.terminal import TerminalReport
    from runner.results import Report

F = TypeVar("F", bound="Callable[..., Any]")

INVALID_EXIT = 2
INCONCLUSIVE_EXIT = 3

#: the report that shows the values at the lines that the command line names
STEP_VALUES = "the values at a line"

_NAME = re.compile(r"[^\W\d]\w*")


def _pairs(ctx: click.Context, param: click.Parameter, values: Iterable[str]) -> dict[str, str]:
    """Split each `K=V`; the value is YAML text."""
    found: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not _NAME.fullmatch(name.strip()):
            message = f"{value!r} is not NAME=VALUE, as in --set width=9"
            raise click.BadParameter(message, ctx=ctx, param=param)
        found[name.strip()] = text
    return found


def selecting(command: F) -> F:
    """Add the paths and the options that select cases and bound them."""
    command = bounding(command)
    for add in (
        option(
            WHICH,
            "--set",
            "sets",
            multiple=True,
            callback=_pairs,
            metavar="K=V",
            help="Replace a parameter or a matrix key; the value is YAML. Repeatable.",
        ),
        option(
            WHICH,
            "--tag",
            "tags",
            multiple=True,
            metavar="TAG",
            help="Only cases with this tag. Repeatable.",
        ),
        option(
            WHICH,
            "-k",
            "keyword",
            metavar="EXPR",
            help="Only cases whose path or name holds these words; `and`, `or`, `not` as in "
            "pytest.",
        ),
    ):
        command = add(command)
    return click.argument("paths", nargs=-1, required=True, type=click.Path())(command)


def judging_strictly(command: F) -> F:
    """Add the option that turns warnings into failures."""
    return option(HOW, "--strict", is_flag=True, help="Fail what has a warning.")(command)


def reporting(command: F) -> F:
    """Add the options that choose reports."""
    return reporting_as(FORMATS)(command)


def reporting_as(kinds: Sequence[Format]) -> Callable[[F], F]:
    """Return what adds the options of some kinds of reports."""

    def added(command: F) -> F:
        for add in (
            option(
                REPORTS,
                "--github/--no-github",
                default=None,
                help="Annotate YAML lines in GitHub Actions and write the job's summary; by "
                "itself where GITHUB_ACTIONS=true.",
            ),
            *(
                option(
                    REPORTS,
                    kind.option,
                    kind.parameter,
                    type=click.Path(dir_okay=False, allow_dash=True),
                    metavar="FILE",
                    help=kind.help,
                )
                for kind in reversed(kinds)
            ),
            option(
                REPORTS,
                "--durations",
                type=click.IntRange(min=0),
                default=0,
                metavar="N",
                help="Show the N slowest cases.",
            ),
            option(
                REPORTS,
                "-v",
                "--verbose",
                is_flag=True,
                help="Show every case, with prediction, observation and explanation.",
            ),
        ):
            command = add(command)
        return command

    return added


def selection_of(options: Mapping[str, Any]) -> Selection:
    """Return the selection that a command's options state."""
    from runner.pipeline import Selection  # noqa: PLC0415 -- imports the language

    return Selection(
        paths=tuple(options["paths"]),
        keyword=options["keyword"],
        tags=tuple(options["tags"]),
        sets=options["sets"],
        limits=limits_of(options),
        timeout_s=options.get("timeout"),
        seed=options.get("seed"),
        shard=options.get("shard"),
        failed=options.get("failed", frozenset()),
        only_failed=options.get("last_failed", False),
        failed_first=options.get("failed_first", False),
        strict=options.get("strict", False),
    )


def limits_of(options: Mapping[str, Any]) -> Limits:
    """Return the bounds that a command's options state."""
    return Limits(**{each.name: options[each.name] for each in fields(Limits)})


def reported(
    options: Mapping[str, Any],
    conduct: Callable[[Reports], Outcome],
    *,
    keepers: Mapping[str, Report] | None = None,
    quiet: bool = False,
) -> NoReturn:
    """Open every report, let `conduct` run and tell them, end them, leave with the exit code.

    A report that cannot be written is told before anything runs; what ends the run early (a command
    line that makes no sense, an environment that starts nothing) leaves no report behind. `keepers`
    are told as well and write no report; `quiet` leaves passes out of what people read.

    Where nothing more can be written to standard output the reports are written all the same. The
    exit code is the verdict's if the reader has left (`| head`); it is 3 where a report is lost, or
    where everything passed and that could not be said.
    """
    with handled():
        _reported(options, conduct, keepers=keepers, quiet=quiet)


def _reported(
    options: Mapping[str, Any],
    conduct: Callable[[Reports], Outcome],
    *,
    keepers: Mapping[str, Report] | None,
    quiet: bool,
) -> NoReturn:
    terminal = _terminal(options, quiet=quiet)
    others = {**_beside(options, terminal), **(keepers or {})}
    try:
        with Reports(terminal, others).open(_wanted(options)) as reports:
            reports.traces = reports.traces or STEP_VALUES in others
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


def _wanted(options: Mapping[str, Any]) -> list[tuple[Format, str]]:
    chosen = ((kind, options.get(kind.parameter)) for kind in FORMATS)
    return [(kind, path) for kind, path in chosen if path]


def _terminal(options: Mapping[str, Any], *, quiet: bool) -> TerminalReport:
    """Return the report for people: on standard output, unless another one goes there."""
    from runner.report.terminal import TerminalReport  # noqa: PLC0415 -- not for --help

    taken = any(path == STANDARD_OUTPUT for _, path in _wanted(options))
    file = sys.stderr if taken else sys.stdout
    return TerminalReport(
        file, verbose=options["verbose"], durations=options["durations"], quiet=quiet
    )


def _beside(options: Mapping[str, Any], terminal: TerminalReport) -> dict[str, Report]:
    """Return the reports that go where the one for people goes."""
    from runner.places import place_of  # noqa: PLC0415 -- imports the language

    found: dict[str, Report] = {}
    lines: dict[str, list[int]] = {}
    for place in map(place_of, options.get("paths", ())):
        if place.line is not None:
            lines.setdefault(place.path, []).append(place.line)
    if lines:
        from runner.report.step_values import StepValues  # noqa: PLC0415 -- where a line is named

        found[STEP_VALUES] = StepValues(terminal.print, lines)
    wanted = options["github"]
    if wanted is None:
        wanted = os.environ.get("GITHUB_ACTIONS") == "true"
    if wanted:
        from runner.report.github import GithubReport  # noqa: PLC0415 -- only in GitHub Actions

        found["--github"] = GithubReport(terminal.file, os.environ)
    return found


def refuse(error: ScenarioError) -> NoReturn:
    """Print what is wrong with the command line, and leave with exit code 2."""
    for problem in error.problems:
        click.echo(str(problem), err=True)
    sys.exit(INVALID_EXIT)
