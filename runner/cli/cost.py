"""`scenario cost`: what a program costs on any machine, and its time on a topology."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from runner.cli.options import GroupedCommand, option, refuse, selecting, selection_of
from runner.display import clean
from runner.errors import ScenarioError

if TYPE_CHECKING:
    from runner.model.scenario import Scenario
    from runner.pipeline.results import Analysis

COSTS = "Costs"


@click.command(cls=GroupedCommand)
@selecting
@option(
    COSTS,
    "--json",
    "json_file",
    type=click.Path(),
    metavar="FILE",
    help="Write what it costs as JSON; `-` is standard output.",
)
def cost(**options: Any) -> None:
    """Count what programs cost: rounds, messages, bytes. Start no process.

    The cost of a program that has a diagnosis is refused, with the diagnosis and exit code 1.
    """
    from runner.pipeline.results import INVALID, NOTHING_SELECTED
    from runner.pipeline.selection import load_all
    from runner.report.text import problem_lines

    selection = selection_of(options)
    try:
        loaded = load_all(selection)
    except ScenarioError as error:
        refuse(error)
    quiet = options["json_file"] == "-"
    cases, codes = [], set()
    for result in loaded.invalid:
        codes.add(INVALID)
        for problem in result.verdict.problems:
            for shown in problem_lines(problem):
                click.echo(shown.printable, err=True)
    for scenario in loaded.scenarios:
        entry, lines, code = _costed(scenario, selection.limits)
        codes.add(code)
        cases.append(entry)
        for line in [] if quiet else lines:
            click.echo(clean(line))
    if options["json_file"] is not None:
        _write(options["json_file"], {"version": 1, "cases": cases})
    if not loaded.scenarios and not loaded.invalid:
        click.echo("nothing was selected", err=True)
        sys.exit(NOTHING_SELECTED)
    sys.exit(max(codes, default=0))


def _costed(scenario: Scenario, limits: Any) -> tuple[dict[str, Any], list[str], int]:
    """Return one case as JSON, as lines, and its exit code."""
    from runner.cost.structure import Refused, structure_json, structure_lines, structure_of
    from runner.pipeline.attempts import analyse
    from runner.report.text import problem_lines

    analysis: Analysis = analyse(scenario, limits)
    head = f"{scenario.source.path}::{scenario.case}"
    entry: dict[str, Any] = {"file": scenario.source.path, "case": scenario.case}
    if analysis.predicted is None or analysis.verdict.status == "INVALID":
        shown = [each for problem in analysis.verdict.problems for each in problem_lines(problem)]
        lines = [f"INVALID  {head}", *(each.printable for each in shown)]
        reason = analysis.verdict.reason
        return {**entry, "refused": reason or "invalid"}, lines + ([reason] if reason else []), 2
    try:
        structure = structure_of(analysis.predicted)
    except Refused as refused:
        lines = [head, *(f"  {line}" for line in str(refused).splitlines())]
        names = list(dict.fromkeys(each.name for each in analysis.predicted.diagnoses))
        refusal = {"refused": str(refused), "diagnoses": names}
        return {**entry, **refusal}, lines, 1
    lines = [head, *(f"  {line}" for line in structure_lines(structure))]
    return {**entry, "ranks": scenario.world_size, **structure_json(structure)}, lines, 0


def _write(path: str, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=2) + "\n"
    if path == "-":
        click.echo(text, nl=False)
        return
    try:
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 -- as the user names it
            file.write(text)
    except OSError as error:
        message = f"--json {path}: {error.strerror}"
        raise click.UsageError(message) from None
