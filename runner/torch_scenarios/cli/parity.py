"""`scenario parity`: whether n processes compute what one process computes."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from torch_scenarios.cli.options import (
    HOW,
    REPORTS,
    GroupedCommand,
    option,
    refuse,
    refuse_usage,
    write_text,
)
from torch_scenarios.display import clean
from torch_scenarios.errors import LaunchError, ScenarioError
from torch_scenarios.pipeline.interruption import interrupt_on_termination

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch_scenarios.errors import Problem
    from torch_scenarios.record.live import Order
    from torch_scenarios.record.values.parity import Parity

#: verdict -> exit code
EXITS = {"PASSED": 0, "FAILED": 1, "INCONCLUSIVE": 3}


@click.command("parity", cls=GroupedCommand)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@option(
    HOW, "-n", "--world-size", type=click.IntRange(2, 65_536), default=2, help="How many ranks."
)
@option(HOW, "--reference", default="", help="The script with its arguments that one process runs.")
@option(HOW, "--no-dropout", is_flag=True, help="Let every dropout keep all, in both.")
@option(
    HOW,
    "--init",
    type=click.Choice(["own", "reference"]),
    default="own",
    help="`reference`: begin with its weights, where names and shapes are equal.",
)
@option(
    HOW,
    "--steps",
    type=click.IntRange(1, 1000),
    default=3,
    help="How many steps are compared; those behind a resume as well.",
)
@option(
    HOW, "--max-seconds", type=click.FloatRange(0), default=600.0, help="End a run after so long."
)
@option(
    REPORTS,
    "-o",
    "--output",
    "folder",
    type=click.Path(),
    default=None,
    help="The records' folder.",
)
@option(
    REPORTS,
    "--json",
    "as_json",
    type=click.Path(),
    default=None,
    help="Write the result as JSON; `-` is standard output.",
)
@option(
    REPORTS,
    "--html",
    "html_file",
    type=click.Path(),
    default=None,
    help="Write a page: the modules as a tree, and which part of each the ranks have.",
)
def parity(**options: Any) -> None:
    """Compare n processes with one: gradients and weights at the first steps.

    COMMAND is a script with its arguments, behind `--`, with `--reference` for one process; or the
    folders of two records with values: of one process, of several. Exit codes: 0 they compute the
    same, 1 they do not, 3 it is not known.
    """
    command = tuple(options["command"])
    interrupt_on_termination()
    try:
        if options["reference"]:
            one, many = _record_both(command, options)
            title = _title(command, options)
            _tell(one, many, options, title, partial(_disturb, one, options))
        elif len(command) == 2 and all(Path(each).is_dir() for each in command):
            one, many = map(Path, command)
            _tell(one, many, options, f"{many} against {one}")
        else:
            refuse_usage(
                "write `scenario parity -n 4 --reference train.py -- train.py`, or name the "
                "folders of two records"
            )
    except ScenarioError as error:
        refuse(error)
    except LaunchError as error:
        click.echo(clean(str(error)), err=True)
        sys.exit(EXITS["INCONCLUSIVE"])


def _record_both(command: tuple[str, ...], options: dict[str, Any]) -> tuple[Path, Path]:
    """Record the reference in one process and the script in several; return their folders."""
    home = Path(options["folder"] or tempfile.mkdtemp(prefix="scenario-parity-"))
    try:
        reference = tuple(shlex.split(options["reference"]))
    except ValueError as error:
        refuse_usage(f"`--reference` cannot be split: {error}")
    if not command:
        refuse_usage("there is nothing to compare: write the script behind `--`")
    one, many = home / "one", home / "many"
    _record(reference, one, 1, options)
    more = {}
    if options["init"] == "reference":
        more["init"] = str((one / "values-00000-step-0.safetensors").absolute())
    _record(command, many, options["world_size"], options, more)
    return one, many


def _disturb(one: Path, options: dict[str, Any]) -> list[Path]:
    """Record the reference some times more, its modules rounding otherwise."""
    from torch_scenarios.record.values.further_run import UnsuitedError, disturb

    reference = tuple(shlex.split(options["reference"]))
    try:
        return disturb(_order(reference, one, 1, options), one)
    except UnsuitedError as error:
        click.echo(clean(f"scenario: what rounding does is not measured: {error}"), err=True)
        return []


def _record(
    command: tuple[str, ...],
    folder: Path,
    world: int,
    options: dict[str, Any],
    more: Mapping[str, Any] | None = None,
) -> None:
    """Record a script with its values; end the command where it does not come to its end."""
    from torch_scenarios.record.analysis import NothingRecordedError, record

    if command and command[0].endswith(".py") and not Path(command[0]).is_file():
        refuse_usage(f"there is no script `{command[0]}`")
    order = _order(command, folder, world, options, more or {})
    try:
        found = record(order, notice=lambda words: click.echo(f"scenario: {words}", err=True))
    except NothingRecordedError as error:
        click.echo(clean(str(error)), err=True)
        sys.exit(EXITS["INCONCLUSIVE"])
    if not found.is_whole:
        of = "one process" if world == 1 else f"{world} ranks"
        words = f"the script of {of} does not finish: {found.reason}"
        click.echo(clean(f"INCONCLUSIVE {words}; `scenario import {folder}` has all of it"))
        sys.exit(EXITS["INCONCLUSIVE"])


def _order(
    command: tuple[str, ...],
    folder: Path,
    world: int,
    options: dict[str, Any],
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Order:
    """Return how a script is recorded for a comparison."""
    from torch_scenarios.record.live import KEPT_FOR_PARITY, Order

    how: dict[str, Any] = {"steps": options["steps"]}
    if options["no_dropout"]:
        how["no_dropout"] = True
    return Order(
        command=command,
        folder=folder,
        world_size=world,
        ranks=tuple(range(world)),
        max_seconds=options["max_seconds"],
        aside=options["as_json"] == "-",
        values={**KEPT_FOR_PARITY, **how, **more},
    )


def _title(command: tuple[str, ...], options: dict[str, Any]) -> str:
    """Return what is compared with what: the script alone, where that is its own reference."""
    script, reference = shlex.join(command), options["reference"]
    title = f"{script}  {options['world_size']} ranks"
    return title if reference == script else f"{title} against {reference}"


def _tell(
    one: Path,
    many: Path,
    options: dict[str, Any],
    title: str,
    disturb: Callable[[], list[Path]] = list,
) -> NoReturn:
    """Compare, print the verdict and its finding, and leave with the exit code.

    `disturb` records the reference with other roundings, where what rounding does decides.
    """
    from torch_scenarios.record.values.parity import compare
    from torch_scenarios.record.values.verdict import problems_of

    disturbed = sorted(one.glob("disturbed-*"))
    found = compare(one, many, disturbed)
    if found.is_close and not disturbed and (disturbed := disturb()):
        found = compare(one, many, disturbed)
    problems = problems_of(found.judgement.findings, many)
    if options["as_json"] != "-":
        for line in _lines(found, problems, title):
            click.echo(clean(line))
    if options["html_file"]:
        _draw(options["html_file"], found, problems, (one, many, disturbed), title)
    if options["as_json"]:
        _write(options["as_json"], found, problems)
    sys.exit(EXITS[found.status])


def _draw(
    path: str,
    found: Parity,
    problems: list[Problem],
    records: tuple[Path, Path, list[Path]],
    title: str,
) -> None:
    """Write the page of a comparison."""
    from torch_scenarios.record.values.module_tree import build_tree, draw_page

    one, many, disturbed = records
    head = _lines(found, [], title)[0]
    write_text(path, draw_page(build_tree(one, many, found, disturbed), head, problems))


def _lines(found: Parity, problems: list[Problem], title: str) -> list[str]:
    same = "what one process computes"
    words = {
        "PASSED": f"its ranks compute {same}: {found.compared} values compared",
        "FAILED": f"its ranks do not compute {same}",
        "INCONCLUSIVE": found.reason,
    }[found.status]
    lines = [f"{found.status:12} {title}: {words}"]
    for problem, each in zip(problems, found.judgement.findings, strict=False):
        kind = "error" if each.error else "warning"
        lines += ["  " + line.replace("= help: ", "fix: ", 1) for line in problem.lines(kind)]
    lines += [f"  note: {each}" for each in found.notes]
    if found.later:
        lines.append(f"    from here on: {found.later} more values of {found.compared}")
    return lines


def _write(path: str, found: Parity, problems: list[Problem]) -> None:
    """Write the result as JSON, or to standard output where the path is `-`."""
    document = {
        "version": 1,
        "verdict": found.status,
        "reason": found.reason,
        "compared": found.compared,
        "later": found.later,
        "open": list(found.judgement.open),
        "notes": list(found.notes),
        "problems": [
            {
                "code": problem.code,
                "severity": "error" if each.error else "warning",
                "message": problem.message,
                "file": problem.mark.source.path if problem.mark else None,
                "line": problem.mark.line if problem.mark else None,
                "hint": problem.hint,
                "ranks": list(each.ranks),
            }
            for problem, each in zip(problems, found.judgement.findings, strict=True)
        ],
    }
    text = json.dumps(document, indent=2)
    write_text(path, text + "\n")
