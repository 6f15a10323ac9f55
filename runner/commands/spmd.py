"""`python -m runner.worker`: `scenario run` for a launch that torchrun or a cluster has started."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import click

from runner.commands.arranging import arranging
from runner.commands.grouping import GroupedCommand
from runner.commands.options import limits_of, reported, reporting, selecting
from runner.commands.run import conducted, launch_options, launching
from runner.problems import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: the name that the command line has among the files that a node has read
COMMAND_LINE = "the command line"
#: what may name a file that a scenario uses
_NAMED = re.compile(rb"[\w./-]+\.ya?ml\b")


@click.command("runner.worker", cls=GroupedCommand)
@selecting
@arranging
@launching
@reporting
@click.pass_obj
def command(conduct: Any, /, **options: Any) -> None:  # noqa: ANN401 -- click hands over what it parsed
    """Run scenarios on the ranks of this launch, as `scenario run` does on ranks of its own.

    PATHS are scenario files, or folders that hold some. Every rank gets the same command line; rank
    0 reads it, judges and reports. A scenario that ends a process ends the launch: those after it
    are inconclusive.
    """
    reported(
        options,
        lambda reports: conducted(options, reports, lambda: conduct(launch_options(options))),
    )


def read(arguments: Sequence[str]) -> dict[str, str]:
    """Return a digest of each file that a command line leads to, by its path, and of itself.

    What a file uses is among them. A path that is not there has no digest: rank 0 says so where it
    is so on every node. Raises nothing; a command line that makes no sense leads to no file.
    """
    found = {COMMAND_LINE: _digest("\0".join(arguments).encode())}
    try:
        options = command.make_context("runner.worker", list(arguments)).params
    except (click.ClickException, click.exceptions.Exit):
        return found
    from runner.language.discovery import discover, project_root, read_file  # noqa: PLC0415 -- slow
    from runner.places import place_of  # noqa: PLC0415 -- imports the language as well

    limits = limits_of(options)
    waiting: list[tuple[Path, Path]] = []
    for path in options["paths"]:
        try:
            files = discover([place_of(path).path], limits)
        except ScenarioError:
            found[path] = "not there"
        else:
            waiting += [(file, project_root(file)) for file in files]
    while waiting:
        file, root = waiting.pop()
        if str(file) in found:
            continue
        try:
            text = read_file(file, limits, root)
        except ScenarioError:
            found[str(file)] = "cannot be read"
            continue
        found[str(file)] = _digest(text)
        named = (file.parent / name.decode() for name in set(_NAMED.findall(text)))
        waiting += [(other, root) for other in named if _is_below(root, other)]
    return found


def _is_below(root: Path, path: Path) -> bool:
    """Return whether a file is there, in its project; others are only words that look like one."""
    try:
        return path.is_file() and path.resolve().is_relative_to(root)
    except OSError:  # too long for a name
        return False


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]
