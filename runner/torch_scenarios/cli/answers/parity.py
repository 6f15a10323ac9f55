"""What `scenario parity` does: whether ranks compute what one process computes.

    scenario parity -n 4 --reference train.py -- train.py

records `train.py` in one process and in four, each with the values of its layers, and compares the
two records. Folders of records in place of commands are compared as they are.
"""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import click

from torch_scenarios.cli.options import refuse, refuse_usage, write_text
from torch_scenarios.display import clean
from torch_scenarios.errors import LaunchError, Problem, ScenarioError
from torch_scenarios.pipeline.interruption import interrupt_on_termination
from torch_scenarios.record.analysis import NothingRecordedError, record
from torch_scenarios.record.live import KEPT_FOR_PARITY, RunOrder
from torch_scenarios.record.values.further_run import UnsuitedError, disturb
from torch_scenarios.record.values.module_tree import build_tree, draw_page
from torch_scenarios.record.values.parity import Parity, compare
from torch_scenarios.record.values.verdict import problems_of

#: verdict -> exit code
EXITS = {"PASSED": 0, "FAILED": 1, "INCONCLUSIVE": 3}


def parity(options: dict[str, Any]) -> None:
    """Record both where that is asked for, compare them, and leave with the exit code."""
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
    """Record the reference in one process and the script in several; return their folders.

    With `--init reference` the ranks begin with the weights that the reference had before its first
    step, so that another order of random numbers is no difference.
    """
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
) -> RunOrder:
    """Return how a script is recorded for a comparison.

    `aside` lets what the script prints go to standard error, since `--json -` writes to standard
    output.
    """
    how: dict[str, Any] = {"steps": options["steps"]}
    if options["no_dropout"]:
        how["no_dropout"] = True
    return RunOrder(
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
    one, many, disturbed = records
    head = _lines(found, [], title)[0]
    write_text(path, draw_page(build_tree(one, many, found, disturbed), head, problems))


def _lines(found: Parity, problems: list[Problem], title: str) -> list[str]:
    """Return what is printed.

    The verdict, each problem with its fix, the notes, and how much follows.

    The first layer that differs makes all behind it differ; so these are counted and not listed.
    """
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
