"""`scenario certify`: what a backend of one's own passes of the corpus, level by level."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from torch_scenarios.cli.options import (
    HOW,
    REPORTS,
    WHICH,
    GroupedCommand,
    add_execution_options,
    add_reports_as,
    launch_options,
    option,
    refuse_usage,
    report,
    selection_of,
)
from torch_scenarios.display import clean
from torch_scenarios.errors import LaunchError
from torch_scenarios.files import corpus_folder
from torch_scenarios.limits import DEFAULT

if TYPE_CHECKING:
    from torch_scenarios.pipeline.results import Outcome
    from torch_scenarios.report.output import Reports

#: the options of `scenario run` that this command does not have, as they are by default
AS_EVER: dict[str, Any] = {"tags": (), "sets": {}, **asdict(DEFAULT)}


@click.command("certify", cls=GroupedCommand)
@click.argument("paths", nargs=-1, type=click.Path())
@option(
    WHICH,
    "--first",
    is_flag=True,
    help="Only the twenty files that say most, soonest.",
)
@option(WHICH, "-k", "keyword", metavar="EXPR", help="Only cases whose path or name holds this.")
@option(
    HOW,
    "-j",
    "--jobs",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="Run so many cases at once.",
)
@add_execution_options
@option(
    REPORTS,
    "-o",
    "--output",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Write certificate.md, certificate.json and badge.svg into this folder.",
)
@add_reports_as([])
def certify(**options: Any) -> None:
    """Run the corpus on a backend, and say which levels it passes.

    The levels are p2p, collectives, groups, async, objects, errors, hangs and dtypes. A case
    belongs to the last of them that it needs anything of. What the plugin declares in `LACKS` is
    counted as lacking. PATHS are scenarios; left out, the corpus that comes with the package. The
    plugin is a module, or the path of a file. The exit code is that of `scenario run`.
    """
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
    from torch_scenarios.conformance.certificate import FIRST

    return [str(corpus_folder() / f"{name}.yaml") for name in FIRST]


def _certify(options: dict[str, Any], reports: Reports) -> Outcome:
    """Run the cases, and say what the backend passes."""
    from torch_scenarios.conformance import certificate as paper
    from torch_scenarios.execution import Launcher
    from torch_scenarios.execution.backends import carrier
    from torch_scenarios.pipeline.run import run
    from torch_scenarios.pipeline.selection import load_all

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
