"""What a command line selects, what is remembered of the run before, and how edits are shown."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from torch_scenarios.cli.options import limits_of
from torch_scenarios.model.traits import carrier
from torch_scenarios.pipeline.history import (
    CHECKED,
    RUN,
    LastRun,
    folder_of,
    keepers,
    read_failed,
)
from torch_scenarios.pipeline.results import Key, Report, Selection, Shard


def recall(
    options: Mapping[str, Any], *, checks: bool = False
) -> tuple[frozenset[Key], dict[str, Report]]:
    """Return what did not pass the last time, and what remembers this run, or this check."""
    wanted = options["last_failed"] or options["failed_first"]
    if options["no_cache"]:
        if wanted:
            message = "--last-failed and --failed-first need what --no-cache leaves unread"
            raise click.UsageError(message)
        return frozenset(), {}
    folder = folder_of(Path.cwd())
    found: frozenset[Key] = frozenset()
    if wanted:
        found, notes = read_failed(folder, CHECKED if checks else RUN)
        for note in notes:
            click.echo(f"note: {note}", err=True)
    if checks:
        return found, {"what failed": LastRun(folder, CHECKED)}
    return found, {} if options["dry_run"] else keepers(folder)


def diff_text(before: str, after: str, old: str, new: str) -> str:
    r"""Return what changes from one text to another, as `patch` and `git apply` read it.

    `old` and `new` are what the two are called. A last line without a line feed has the note behind
    it that both tools need to write it back as it was.

    >>> print(diff_text("world_size: 2", "world_size: 4\n", "a.yaml", "a.yaml (fixed)"), end="")
    --- a.yaml
    +++ a.yaml (fixed)
    @@ -1 +1 @@
    -world_size: 2
    \ No newline at end of file
    +world_size: 4
    """
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), old, new
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def selection_of(options: Mapping[str, Any]) -> Selection:
    """Return the selection that a command's options state."""
    shard, backend = options.get("shard"), options.get("backend")
    return Selection(
        paths=tuple(options["paths"]),
        keyword=options["keyword"],
        tags=tuple(options["tags"]),
        sets=options["sets"],
        limits=limits_of(options),
        timeout_s=options.get("timeout"),
        seed=options.get("seed"),
        shard=None if shard is None else Shard(number=shard[0], of=shard[1]),
        failed=options.get("failed", frozenset()),
        only_failed=options.get("last_failed", False),
        failed_first=options.get("failed_first", False),
        strict=options.get("strict", False),
        backend=None if backend in {None, "auto"} else carrier(backend.lower()),
    )
