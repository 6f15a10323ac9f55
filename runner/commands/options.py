"""What several commands have in common: paths, selection, parameters, bounds, reports."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from runner.language.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from runner.pipeline import Outcome, Selection
    from runner.problems import ScenarioError
    from runner.report.terminal import TerminalReport

F = TypeVar("F", bound="Callable[..., Any]")

INVALID_EXIT = 2

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
    for option in (
        click.option(
            "--junit", type=click.Path(dir_okay=False), metavar="FILE", help="Write JUnit XML."
        ),
        click.option(
            "--json",
            "json_file",
            type=click.Path(dir_okay=False, allow_dash=True),
            metavar="FILE",
            help="Write the results as JSON; - is standard output, the report then goes to stderr.",
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


def terminal_of(options: Mapping[str, Any]) -> TerminalReport:
    """Return the report for people: on standard output, unless JSON goes there."""
    from runner.report.terminal import TerminalReport  # noqa: PLC0415 -- rich costs 60 ms

    file = sys.stderr if options["json_file"] == "-" else sys.stdout
    return TerminalReport(file, verbose=options["verbose"], durations=options["durations"])


def finish(outcome: Outcome, report: TerminalReport, options: Mapping[str, Any]) -> NoReturn:
    """Write every report that was asked for, and leave with the exit code."""
    report.summary(outcome)
    written = True
    if options["json_file"]:
        from runner.report import json_report  # noqa: PLC0415 -- only where it is asked for

        written = _write(options["json_file"], json_report.text(outcome)) and written
    if options["junit"]:
        from runner.report import junit  # noqa: PLC0415 -- only where it is asked for

        written = _write(options["junit"], junit.text(outcome)) and written
    sys.exit(outcome.exit_code if written else max(outcome.exit_code, INVALID_EXIT))


def _write(path: str, text: str) -> bool:
    if path == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return True
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        click.echo(f"the report {path} cannot be written: {error.strerror or error}", err=True)
        return False
    return True


def refuse(error: ScenarioError) -> NoReturn:
    """Print what is wrong with the command line, and leave with exit code 2."""
    for problem in error.problems:
        click.echo(str(problem), err=True)
    sys.exit(INVALID_EXIT)
