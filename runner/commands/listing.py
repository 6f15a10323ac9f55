"""`scenario list`: the cases that a command line selects."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from runner.commands.options import refuse, selecting, selection_of
from runner.display import clean
from runner.problems import ScenarioError

if TYPE_CHECKING:
    from runner.scenario import Scenario


@click.command("list")
@selecting
@click.option("-v", "--verbose", is_flag=True, help="Show ranks, tags and the description.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def command(**options: Any) -> None:  # noqa: ANN401 -- click hands over what it parsed
    """List the cases that the options select, a line each: the file and the case.

    Files are read and validated; nothing is evaluated. Exit code 2 where a file is invalid.
    """
    from runner.pipeline import INVALID, NOTHING_SELECTED, load_all  # noqa: PLC0415 -- as above
    from runner.report.prose import problem_lines  # noqa: PLC0415 -- the same

    try:
        loaded = load_all(selection_of(options))
    except ScenarioError as error:
        refuse(error)
    if options["as_json"]:
        click.echo(json.dumps([_entry(each) for each in loaded.scenarios], indent=2))
    else:
        for scenario in loaded.scenarios:
            for line in _lines(scenario, verbose=options["verbose"]):
                click.echo(clean(line))
    for result in loaded.invalid:
        for problem in result.verdict.problems:
            for shown in problem_lines(problem):
                click.echo(shown.printable, err=True)
    if loaded.invalid:
        sys.exit(INVALID)
    if not loaded.scenarios:
        click.echo("nothing was selected", err=True)
        sys.exit(NOTHING_SELECTED)


def _entry(scenario: Scenario) -> dict[str, Any]:
    return {
        "file": scenario.source.path,
        "case": scenario.case,
        "world_size": scenario.world_size,
        "tags": list(scenario.tags),
        "backends": None if scenario.backends is None else list(scenario.backends),
        "description": scenario.description,
    }


def _lines(scenario: Scenario, *, verbose: bool) -> list[str]:
    lines = [f"{scenario.source.path}::{scenario.case}"]
    if verbose:
        tags = f"  [{', '.join(scenario.tags)}]" if scenario.tags else ""
        lines.append(f"    {scenario.world_size} ranks{tags}")
        lines += [f"    {line}" for line in scenario.description.strip().splitlines()]
    return lines
