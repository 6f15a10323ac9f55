"""What several commands have in common: paths, selection, parameters, bounds, reports."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from runner.language.limits import Limits
from runner.problems import LaunchError, ScenarioError
from runner.report.formats import FORMATS
from runner.report.several import Reports
from runner.report.target import STANDARD_OUTPUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import FrameType

    from runner.pipeline import Outcome, Selection
    from runner.report.formats import Format
    from runner.report.terminal import TerminalReport
    from runner.results import Report

F = TypeVar("F", bound="Callable[..., Any]")

INVALID_EXIT = 2
INCONCLUSIVE_EXIT = 3

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
    for bound in reversed(fields(Limits)):
        flag = str(bound.metadata["flag"])
        counts = str(bound.metadata["counts"])
        command = click.option(
            flag,
            type=click.IntRange(min=1),
            default=bound.default,
            show_default=True,
            metavar="N",
            help=f"Bound: {counts}.",
        )(command)
    command = click.option(
        "--set",
        "sets",
        multiple=True,
        callback=_pairs,
        metavar="K=V",
        help="Replace a parameter or a matrix key; the value is YAML. Repeatable.",
    )(command)
    command = click.option(
        "--tag", "tags", multiple=True, metavar="TAG", help="Only cases with this tag. Repeatable."
    )(command)
    command = click.option(
        "-k",
        "keyword",
        metavar="EXPR",
        help="Only cases whose path or name holds these words; `and`, `or`, `not` as in pytest.",
    )(command)
    return click.argument("paths", nargs=-1, required=True, type=click.Path())(command)


def reporting(command: F) -> F:
    """Add the options that choose reports."""
    for kind in reversed(FORMATS):
        command = click.option(
            kind.option,
            kind.parameter,
            type=click.Path(dir_okay=False, allow_dash=True),
            metavar="FILE",
            help=kind.help,
        )(command)
    for option in (
        click.option(
            "--github/--no-github",
            default=None,
            help="Annotate the YAML lines in GitHub Actions, and write the job's summary "
            "(by itself where GITHUB_ACTIONS=true).",
        ),
        click.option(
            "--durations",
            type=click.IntRange(min=0),
            default=0,
            metavar="N",
            help="Show the N slowest cases.",
        ),
        click.option(
            "-v",
            "--verbose",
            is_flag=True,
            help="Show every case, with prediction, observation and explanation.",
        ),
    ):
        command = option(command)
    return command


def selection_of(options: Mapping[str, Any]) -> Selection:
    """Return the selection that a command's options state."""
    from runner.pipeline import Selection  # noqa: PLC0415 -- imports the language

    return Selection(
        paths=tuple(options["paths"]),
        keyword=options["keyword"],
        tags=tuple(options["tags"]),
        sets=options["sets"],
        limits=limits_of(options),
    )


def limits_of(options: Mapping[str, Any]) -> Limits:
    """Return the bounds that a command's options state."""
    return Limits(**{each.name: options[each.name] for each in fields(Limits)})


def reported(options: Mapping[str, Any], conduct: Callable[[Reports], Outcome]) -> NoReturn:
    """Open every report, let `conduct` run and tell them, end them, leave with the exit code.

    A report that cannot be written is told before anything runs; what ends the run early (a command
    line that makes no sense, an environment that starts nothing) leaves no report behind.
    """
    if threading.current_thread() is threading.main_thread():  # under torchrun it is not
        signal.signal(signal.SIGTERM, _interrupt)
    terminal = _terminal(options)
    try:
        with Reports(terminal, _beside(options, terminal)).open(_wanted(options)) as reports:
            outcome = conduct(reports)
            reports.end(outcome)
            failures = reports.failures
    except ScenarioError as error:
        refuse(error)
    except LaunchError as error:
        terminal.close()
        click.echo(str(error), err=True)
        sys.exit(INCONCLUSIVE_EXIT)
    finally:
        terminal.close()
    for failure in failures:
        click.echo(failure, err=True)
    sys.exit(max(outcome.exit_code, INVALID_EXIT) if failures else outcome.exit_code)


def _wanted(options: Mapping[str, Any]) -> list[tuple[Format, str]]:
    return [(kind, options[kind.parameter]) for kind in FORMATS if options[kind.parameter]]


def _terminal(options: Mapping[str, Any]) -> TerminalReport:
    """Return the report for people: on standard output, unless another one goes there."""
    from runner.report.terminal import TerminalReport  # noqa: PLC0415 -- rich costs 60 ms

    taken = any(path == STANDARD_OUTPUT for _, path in _wanted(options))
    file = sys.stderr if taken else sys.stdout
    return TerminalReport(file, verbose=options["verbose"], durations=options["durations"])


def _beside(options: Mapping[str, Any], terminal: TerminalReport) -> dict[str, Report]:
    """Return the reports that go where the one for people goes."""
    wanted = options["github"]
    if wanted is None:
        wanted = os.environ.get("GITHUB_ACTIONS") == "true"
    if not wanted:
        return {}
    from runner.report.github import GithubReport  # noqa: PLC0415 -- only in GitHub Actions

    return {"--github": GithubReport(terminal.console.file, os.environ)}


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Let SIGTERM end the run as Ctrl-C does: results are kept, workers are ended."""
    del number, frame
    raise KeyboardInterrupt


def refuse(error: ScenarioError) -> NoReturn:
    """Print what is wrong with the command line, and leave with exit code 2."""
    for problem in error.problems:
        click.echo(str(problem), err=True)
    sys.exit(INVALID_EXIT)
