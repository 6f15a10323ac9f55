"""What `scenario certify` does."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict

from torch_scenarios.cli.options import (
    launch_options,
    refuse_usage,
    report,
    selection_of,
)
from torch_scenarios.conformance import certificate as paper
from torch_scenarios.conformance.certificate import FIRST
from torch_scenarios.display import clean
from torch_scenarios.errors import LaunchError
from torch_scenarios.execution import Launcher
from torch_scenarios.files import corpus_folder
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.traits import carrier
from torch_scenarios.pipeline.results import Outcome
from torch_scenarios.pipeline.run import run
from torch_scenarios.pipeline.selection import load_all
from torch_scenarios.report.output import Reports

#: the options of `scenario run` that this command does not have, as they are by default
AS_EVER: dict[str, Any] = {"tags": (), "sets": {}, **asdict(DEFAULT)}


def certify(options: Mapping[str, Any]) -> None:
    """Run the corpus on a backend, and say which levels it passes."""
    if options["backend"] == "auto":
        refuse_usage("name the backend: `--backend NAME`, as the plugin registers it")
    paths = options["paths"] or (str(corpus_folder()),)
    if options["first"]:
        if options["paths"]:
            refuse_usage("`--first` chooses the files: leave PATHS out")
        paths = tuple(_first())
    options = {**AS_EVER, **options, "paths": paths}
    report(options, lambda reports: _certify(options, reports))


def _first() -> list[str]:

    return [str(corpus_folder() / f"{name}.yaml") for name in FIRST]


def _certify(options: dict[str, Any], reports: Reports) -> Outcome:
    """Run the cases, and say what the backend passes."""
    launch, selection = launch_options(options), selection_of(options)
    torch, backend = metadata.version("torch"), carrier(options["backend"])
    scenarios = load_all(selection).scenarios
    places = paper.places_of(scenarios, selection.limits, backend=backend, torch=torch)
    outcome = run(selection, lambda: Launcher(launch), reports, jobs=options["jobs"])
    plugin = ", ".join(options["plugins"]) or "none"
    found = paper.certificate(outcome, places, backend=backend, plugin=plugin, torch=torch)
    for line in found.lines():
        click.echo(clean(line))
    folder = options["output"]
    if folder is not None and not outcome.interrupted:
        made = {
            "certificate.md": found.page(),
            "certificate.json": found.document(),
            "badge.svg": found.badge(),
        }
        _write(Path(folder), made)
    return outcome


def _write(folder: Path, texts: dict[str, str]) -> None:
    """Write the files of a certificate. Raises LaunchError where one cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"the certificate cannot be written to {folder}: {error.strerror or error}"
        raise LaunchError(message) from error
