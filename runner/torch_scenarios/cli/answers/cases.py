"""What `scenario list` does."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import click

from torch_scenarios.cli.answers.base import selection_of
from torch_scenarios.cli.options import INCONCLUSIVE_EXIT, refuse
from torch_scenarios.display import clean
from torch_scenarios.errors import ScenarioError
from torch_scenarios.files import replace_file
from torch_scenarios.limits import Limits
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.pipeline.attempts import needs_of
from torch_scenarios.pipeline.results import INVALID, NOTHING_SELECTED
from torch_scenarios.pipeline.selection import load_all
from torch_scenarios.report.output import STANDARD_OUTPUT

#: what each case needs, or why that is not known, by its file and its name
Needed: TypeAlias = Mapping[tuple[str, str], tuple[str, ...] | str]


def list_cases(options: Mapping[str, Any]) -> None:
    """List the cases that the options select; exit code 2 where a file is invalid."""
    try:
        selection = selection_of(options)
        loaded = load_all(selection)
    except ScenarioError as error:
        refuse(error)
    needs = _needs(loaded.scenarios, selection.limits) if options["needs"] else {}
    if options["as_json"]:
        _write_list(options["as_json"], [_entry(each, needs) for each in loaded.scenarios])
    if options["as_json"] != STANDARD_OUTPUT:
        lines = (_lines(each, needs, verbose=options["verbose"]) for each in loaded.scenarios)
        click.echo("".join(f"{clean(line)}\n" for case in lines for line in case), nl=False)
    for result in loaded.invalid:
        verdict = result.verdict
        for words in map(str, verdict.problems or (f"{result.file}: {verdict.reason}",)):
            click.echo(clean(words), err=True)
    if loaded.invalid:
        invalid = any(result.verdict.status == "INVALID" for result in loaded.invalid)
        sys.exit(INVALID if invalid else INCONCLUSIVE_EXIT)
    if not loaded.scenarios:
        click.echo("nothing was selected", err=True)
        sys.exit(NOTHING_SELECTED)


def _needs(scenarios: Sequence[Scenario], limits: Limits) -> Needed:
    """Return what each case needs: it is analysed for that."""
    return {(each.source.path, each.case): needs_of(each, limits) for each in scenarios}


def _write_list(path: str, entries: list[dict[str, Any]]) -> None:
    """Write the cases as JSON; a file that cannot be written ends the command with exit code 3."""
    text = json.dumps(entries, indent=2)
    if path == STANDARD_OUTPUT:
        click.echo(text)
        return
    try:
        replace_file(Path(path), f"{text}\n".encode())
    except OSError as error:
        click.echo(f"{clean(path)} cannot be written: {error.strerror or error}", err=True)
        sys.exit(INCONCLUSIVE_EXIT)


def _entry(scenario: Scenario, needs: Needed) -> dict[str, Any]:
    found = needs.get((scenario.source.path, scenario.case))
    need = {} if found is None else {"needs": None if isinstance(found, str) else list(found)}
    return {
        "file": scenario.source.path,
        "case": scenario.case,
        "world_size": scenario.world_size,
        "tags": list(scenario.tags),
        "backends": None if scenario.backends is None else list(scenario.backends),
        "description": scenario.description,
        **need,
    }


def _lines(
    scenario: Scenario,
    needs: Needed,
    *,
    verbose: bool,
) -> list[str]:
    lines = [f"{scenario.source.path}::{scenario.case}"]
    found = needs.get((scenario.source.path, scenario.case))
    if found is not None:
        words = found if isinstance(found, str) else f"needs {', '.join(found) or 'nothing'}"
        lines[0] += f"  {words}"
    if verbose:
        tags = f"  [{', '.join(scenario.tags)}]" if scenario.tags else ""
        lines.append(f"    {scenario.world_size} ranks{tags}")
        lines += [f"    {line}" for line in scenario.description.strip().splitlines()]
    return lines
