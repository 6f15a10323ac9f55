"""What `scenario check` does: the sure edits of --fix and --diff first."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from msgspec.structs import replace

from torch_scenarios.cli.answers.base import diff_text, recall, selection_of
from torch_scenarios.cli.answers.reports import report
from torch_scenarios.cli.options import refuse_usage
from torch_scenarios.display import clean
from torch_scenarios.errors import ScenarioError
from torch_scenarios.files import read_file, replace_file
from torch_scenarios.limits import OverdueError
from torch_scenarios.model.traits import carrier
from torch_scenarios.pipeline import run
from torch_scenarios.pipeline.history import folder_of
from torch_scenarios.pipeline.results import Selection
from torch_scenarios.pipeline.selection import STANDARD_INPUT, files_of, place_of

if TYPE_CHECKING:
    from torch_scenarios.pipeline.repair import RepairedFile

#: exit code of `--diff` where an edit would change a file
WOULD_CHANGE = 1

#: what an editor may write before the first character of UTF-8: it stays where it is
_BOM = b"\xef\xbb\xbf"


def _refuse_watch(options: Mapping[str, Any]) -> None:
    """Raise UsageError where files are to be edited while a person edits them."""
    if options["fix"] or options["diff"]:
        message = "--watch checks what you save; run --fix or --diff once, without it"
        raise click.UsageError(message)


def _fix(options: Mapping[str, Any], selection: Selection) -> Selection:
    """Edit the files of a selection, and return what is to be checked; with `--diff` leave.

    All repairs are made before the first file is written. What is then checked are the files as
    they are by then; of a text from standard input (`-`) the repaired one.
    """
    if not options["fix"] and not options["diff"]:
        return selection
    if selection.given is not None:
        made = _repair(Path(selection.given[0]), selection.given[1], selection)
        if options["diff"]:
            _show_repairs([made])
        click.echo(made.after, nl=False)
        return replace(selection, given=(selection.given[0], made.after.encode()))
    found = [
        (path, content)
        for path, _ in files_of(selection).found
        if (content := _content(path)) is not None
    ]
    repaired = [
        (content, made)
        for path, content in found
        if (made := _repair(path, content, selection)).changes
    ]
    if options["diff"]:
        _show_repairs(made for _, made in repaired)
    for content, made in repaired:
        _write_repaired(content, made)
    count = sum(len(made.titles) for _, made in repaired)
    if count:
        files = "1 file" if len(repaired) == 1 else f"{len(repaired)} files"
        edits = "1 edit" if count == 1 else f"{count} edits"
        click.echo(f"{edits} in {files}", err=True)
    return selection


def _content(path: Path) -> bytes | None:
    """Return the bytes of a file; None where the check will say why they cannot be read."""
    try:
        return read_file(path)
    except (ScenarioError, OSError):
        return None


def _repair(path: Path, content: bytes, selection: Selection) -> RepairedFile:
    """Return a file repaired; as it is where it cannot be read, which the check then says."""
    from torch_scenarios.pipeline.repair import RepairedFile, repair

    try:
        return repair(path, content, limits=selection.limits, sets=selection.sets)
    except (ScenarioError, OverdueError):
        text = content.decode(errors="replace")
        return RepairedFile(path=path, before=text, after=text)


def _write_repaired(content: bytes, made: RepairedFile) -> None:
    """Write a file whole, where it still holds what was repaired; say what was changed."""
    try:
        if read_file(made.path) != content:
            refuse_usage(f"{made.path} changed meanwhile: run the command again")
        mark = _BOM if content.startswith(_BOM) else b""
        replace_file(made.path.resolve(), mark + made.after.encode())
    except OSError as error:
        refuse_usage(f"{made.path} cannot be written: {error.strerror or error}")
    for title in made.titles:
        click.echo(clean(f"fixed {made.path}: {title}"), err=True)


def _show_repairs(found: Iterable[RepairedFile]) -> NoReturn:
    """Print a unified diff of each file, and leave: 1 where there is one."""
    would = False
    for made in found:
        if made.changes:
            would = True
            click.echo(clean(_repair_difference(made)), nl=False)
    sys.exit(WOULD_CHANGE if would else 0)


def _repair_difference(made: RepairedFile) -> str:
    return diff_text(made.before, made.after, str(made.path), f"{made.path} (fixed)")


def _standard_input(options: dict[str, Any], selection: Selection) -> Selection:
    """Return the selection with what `-` means; UsageError where that makes no sense."""
    named = [place_of(path).path for path in selection.paths]
    if STANDARD_INPUT not in named:
        return selection
    if options["watch"] or len(named) > 1:
        message = "`-` is used alone: standard input is one text"
        raise click.UsageError(message)
    options["no_cache"] = True
    options["text_on_output"] = options["fix"]
    content = sys.stdin.buffer.read(selection.limits.max_file_bytes + 1)
    return replace(selection, given=(options["stdin_filename"], content))


def check(options: dict[str, Any]) -> NoReturn:
    """Check what the options select, or watch it, and leave with the exit code."""
    backend = None if options["backend"] is None else carrier(options["backend"])
    given = _standard_input(options, selection_of(options))
    if options["watch"]:
        _refuse_watch(options)
        from torch_scenarios.cli.answers.run import watch

        watch({**options, "failed": frozenset()}, backend=backend)
    options["failed"], keepers = recall(options, checks=True)
    selection = _fix(options, replace(given, failed=options["failed"]))
    report(
        options,
        lambda told: run.check(
            selection,
            told,
            run.AnalysisRequest(
                traces=told.traces,
                costs=told.costs,
                endings=told.endings,
                backend=backend,
                torch=options["torch"],
            ),
            stop_at_failure=options["exitfirst"],
            folder=None if options["no_cache"] else folder_of(Path.cwd()),
        ),
        keepers=keepers,
    )
