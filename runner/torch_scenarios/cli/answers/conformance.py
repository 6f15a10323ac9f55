"""What `scenario conformance` and `certify` do, and `python -m torch_scenarios.worker`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

import click
from msgspec.structs import asdict, replace

from torch_scenarios.cli.answers.base import selection_of
from torch_scenarios.cli.answers.reports import report
from torch_scenarios.cli.answers.run import launch_options, make_launcher, run_selected
from torch_scenarios.cli.options import INCONCLUSIVE_EXIT, refuse, refuse_usage, settle_framework
from torch_scenarios.conformance import certificate as paper
from torch_scenarios.conformance import document
from torch_scenarios.conformance.certificate import FIRST
from torch_scenarios.conformance.document import Conformance
from torch_scenarios.conformance.run import conduct, find_missing, is_runnable, launch_column
from torch_scenarios.display import clean
from torch_scenarios.errors import LaunchError, ScenarioError
from torch_scenarios.execution import Launcher
from torch_scenarios.files import corpus_folder, replace_file
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.scenario import Scenario
from torch_scenarios.model.traits import carrier
from torch_scenarios.model.versions import release_of
from torch_scenarios.pipeline.results import Executor, Outcome, Selection
from torch_scenarios.pipeline.run import run
from torch_scenarios.pipeline.selection import load_all
from torch_scenarios.report.output import Reports
from torch_scenarios.vocabulary import DTYPES

#: the options of `scenario run` that these commands do not have, as they are by default
AS_EVER: dict[str, Any] = {"tags": (), "sets": {}, **asdict(DEFAULT)}


CHANGED = 1


def conformance(context: click.Context, /, options: Mapping[str, Any]) -> None:
    """Run the corpus and every call on what is installed, and keep the results."""
    if context.invoked_subcommand is not None:
        return

    options = {**AS_EVER, **options}
    settle_framework(options)
    if options["launcher"] or options["missing"]:
        try:
            runnable = is_runnable(selection_of(options))
            if runnable and options["missing"]:
                _leave_if_whole(options)
        except ScenarioError as error:
            refuse(error)
        if runnable and options["launcher"]:  # else nothing is launched, and the reports say why
            _launch_column(options)
    chosen = launch_options(options)
    report(
        options,
        lambda reports: keep_column(
            options, reports, lambda: make_launcher(options["framework"], chosen), options["output"]
        ),
    )


def _launch_column(options: dict[str, Any]) -> NoReturn:
    """Let others start the ranks, and put the column into the file; ends with the exit code.

    With `--launcher` another program (`srun`, `mpiexec`) starts the ranks. This process has none of
    them: it chooses the cases, starts that program, reads what came of it, and writes.
    """
    path = options["output"]
    words = ["--backend", options["backend"]]
    for module in options["plugins"]:
        words += ["--plugin", module]
    try:
        columns = _read_columns(path)
        column = launch_column(
            shlex.split(options["launcher"]),
            words,
            selection_of(options),
            name=options["name"],
            known=_find_known(columns, options),
            say=lambda line: click.echo(clean(line), err=True),
        )
    except ScenarioError as error:
        refuse(error)
    except LaunchError as error:
        click.echo(clean(str(error)), err=True)
        sys.exit(INCONCLUSIVE_EXIT)
    replace_file(Path(path), document.text({**columns, column.name: column}.values()).encode())
    click.echo(f"column {column.name!r} is in {path}: {column.counts}", err=True)
    sys.exit(CHANGED if column.counts.get("FAILED") else 0)


def _read_columns(path: str) -> dict[str, Conformance]:
    return document.read(path) if Path(path).exists() else {}


def _find_known(
    columns: Mapping[str, Conformance], options: Mapping[str, Any]
) -> Conformance | None:
    """Return the column that `--missing` completes; None runs all of it.

    By its name, else it is the one of this backend and this release of torch: 2.9.1+cpu and
    2.9.1+cu128 are one. Where two fit, `--name` must say which.
    """
    if not options.get("missing"):
        return None
    if options["name"]:
        return columns.get(options["name"])
    backend = carrier(options["backend"])
    of_torch = options["framework"] == "torch"
    torch = release_of(metadata.version("torch")) if of_torch else ()
    found = [
        each
        for each in columns.values()
        if each.backend == backend and (release_of(each.torch) if each.torch else ()) == torch
    ]
    if backend == "auto" or len(found) > 1:
        names = ", ".join(repr(each.name) for each in found or columns.values())
        refuse_usage(f"say which column `--missing` completes, by `--name`: {names}")
    return found[0] if found else None


def _leave_if_whole(options: Mapping[str, Any]) -> None:
    """End the command where the column lacks nothing."""
    known = _find_known(_read_columns(options["output"]), options)
    if known is None:
        return
    cases, dtypes = find_missing(known, selection_of(options), options["dtypes"])
    if not cases.paths and (options["launcher"] or not dtypes):
        click.echo(f"column {known.name!r} lacks no case of these and no call", err=True)
        sys.exit(0)


def keep_column(
    options: dict[str, Any],
    reports: Reports,
    launch: Callable[[], AbstractContextManager[Executor]],
    path: str,
) -> Outcome:
    """Run the corpus and the table, and put what was seen into the file as another column.

    A run that was interrupted, that had nothing to run or nothing to run on, leaves the file as it
    was.
    """
    columns = _read_columns(path)
    outcome, column = conduct(
        selection_of(options),
        launch,
        reports,
        dtypes=options.get("dtypes") or DTYPES,
        backend=options["backend"],
        name=options.get("name", ""),
        known=_find_known(columns, options),
        say=lambda line: click.echo(clean(line), err=True),
    )
    lack = _lack(outcome, column)
    if lack is not None:
        click.echo(f"nothing is written to {path}: {lack}", err=True)
        return outcome
    replace_file(Path(path), document.text({**columns, column.name: column}.values()).encode())
    click.echo(f"column {column.name!r} is in {path}", err=True)
    return outcome


def spmd(conduct: Any, options: dict[str, Any]) -> NoReturn:
    """Run what the options select on the ranks of a launch, by what `conduct` makes of them."""
    launch = partial(conduct, launch_options(options))
    if options["conformance"]:
        report(
            options, lambda reports: keep_column(options, reports, launch, options["conformance"])
        )
    report(options, lambda reports: run_selected(options, reports, launch))


def _lack(outcome: Outcome, column: Conformance) -> str | None:
    """Return what keeps a column from saying what a backend does, if anything.

    A backend that is not built refuses nothing and computes nothing: each of its calls fails to
    start. Such a column would say that the backend does not support anything, and replace one that
    knows better.
    """
    if outcome.interrupted:
        return "the run was interrupted"
    if any(result.verdict.status == "INVALID" for result in outcome.results):
        return "a file is invalid"
    if not column.cases:
        return "no case is selected"
    if not {"same", "refuses"} & {seen.outcome for seen in column.cells.values()}:
        return "no call ran to its end"
    return None


def compare(old: str, new: str, folder: str | None) -> None:
    """Say what changed between two versions of torch, or two backends.

    Each difference has a scenario that shows it by itself: a file, if one is given, else its text.
    The exit code is 1 where there is one.
    """
    try:
        before, after = document.one(old), document.one(new)
    except ScenarioError as error:
        refuse(error)
    found = before.differences(after)
    for each in found:
        click.echo(
            clean(f"{each.what}: {each.before} in {before.name}, {each.after} in {after.name}")
        )
        if each.words:
            click.echo(clean(f"  {each.words}"))
        if not each.file:
            click.echo(clean(f"  scenario: {each.scenario}"))
        elif folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            replace_file(Path(folder) / each.file, each.scenario.encode())
            click.echo(clean(f"  scenario: {Path(folder) / each.file}"))
        else:
            click.echo("  scenario:")
            click.echo(clean("".join(f"    {line}\n" for line in each.scenario.splitlines())))
    gone, came = before.count_left_out(after)
    if gone or came:
        click.echo(f"{gone} are in {before.name} only, {came} in {after.name} only", err=True)
    click.echo(f"{len(found)} differences", err=True)
    sys.exit(CHANGED if found else 0)


def ranges(path: str, backend: str) -> None:
    """Propose the `torch:` key of each case that fails in some version of torch.

    From columns of 2.6, 2.7 and 2.8 of which the first fails comes `torch: ">=2.7"`. The columns of
    one backend are looked at; without any the command line is wrong.
    """
    try:
        columns = document.read(path)
        found = document.propose(columns, backend)
    except ScenarioError as error:
        refuse(error)
    versions = sum(column.backend == backend for column in columns.values())
    if not versions:
        backends = ", ".join(sorted({column.backend for column in columns.values()})) or "none"
        message = f"{path} has no column of {backend}; it has columns of {backends}"
        raise click.UsageError(message)
    for each in found:
        click.echo(clean(str(each)))
        if each.words:
            click.echo(clean(f"  {each.words}"))
    click.echo(f"{len(found)} ranges proposed, from {versions} versions of torch", err=True)
    sys.exit(CHANGED if found else 0)


def certify(options: Mapping[str, Any]) -> None:
    """Run the corpus on a backend, and say which levels it passes."""
    if options["backend"] == "auto":
        refuse_usage("name the backend: `--backend NAME`, as the plugin registers it")
    paths = options["paths"] or (str(corpus_folder()),)
    if options["first"]:
        if options["paths"]:
            refuse_usage("`--first` chooses the files: leave PATHS out")
        paths = tuple(_list_first_files())
    options = {**AS_EVER, **options, "paths": paths}
    report(options, lambda reports: _certify(options, reports))


def _list_first_files() -> list[str]:
    return [str(corpus_folder() / f"{name}.yaml") for name in FIRST]


def _certify(options: dict[str, Any], reports: Reports) -> Outcome:
    """Run the cases, and say what the backend passes."""
    launch, selection = launch_options(options), selection_of(options)
    torch, backend = metadata.version("torch"), carrier(options["backend"])
    loaded = load_all(selection)
    places = paper.places_of(loaded.scenarios, selection.limits, backend=backend, torch=torch)
    if not loaded.invalid:
        selection = _leave_out_unasked(selection, loaded.scenarios, places)
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


def _leave_out_unasked(
    selection: Selection,
    scenarios: Iterable[Scenario],
    places: Mapping[paper.Key, paper.CaseLevel | None],
) -> Selection:
    """Return a selection without the cases that no level asks for; all of them, if none is left."""
    keys = [(each.source.path, each.case) for each in scenarios]
    kept = [key for key in keys if places.get(key, True) is not None]
    if not kept or len(kept) == len(keys):
        return selection
    count = len(keys) - len(kept)
    noun, them = ("case is", "it") if count == 1 else ("cases are", "them")
    click.echo(f"note: {count} {noun} left out: no level asks this backend for {them}", err=True)
    return replace(selection, paths=tuple(f"{path}::{case}" for path, case in kept), keyword=None)


def _write(folder: Path, texts: dict[str, str]) -> None:
    """Write the files of a certificate. Raises LaunchError where one cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"the certificate cannot be written to {folder}: {error.strerror or error}"
        raise LaunchError(message) from error
