"""Which files are scenarios: those named, and those below the folders named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from runner.problems import Problem, ScenarioError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SUFFIXES = frozenset({".yaml", ".yml"})

#: folders that hold no scenarios, whatever lies in them
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages"})

#: how many files are looked at to find one of the same name
_SEARCHED = 20_000


def discover(paths: Iterable[str | Path]) -> tuple[Path, ...]:
    """Return the scenario files below some paths, sorted within each, each once.

    A file that is named is taken whatever it is called; in a folder all `*.yaml` and `*.yml` are,
    except in hidden folders. Libraries are among them: `load` checks them and returns no case.
    Raises ScenarioError with every path that does not exist.
    """
    found: dict[Path, Path] = {}
    problems: list[Problem] = []
    for path in map(Path, paths):
        if path.is_dir():
            for file in sorted(_below(path, problems)):
                found.setdefault(file.resolve(), file)
        elif path.exists():
            found.setdefault(path.resolve(), path)
        else:
            problems.append(not_found(path))
    if problems:
        raise ScenarioError(problems)
    return tuple(found.values())


def _below(folder: Path, problems: list[Problem] | None = None) -> Iterator[Path]:
    def note(error: OSError) -> None:
        if problems is not None:
            problems.append(
                Problem(
                    code="unreadable_file",
                    message=f"the folder {error.filename} cannot be read: {error.strerror}",
                )
            )

    for where, folders, files in os.walk(folder, onerror=note):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in _SKIPPED
        )
        for name in sorted(files):
            if os.path.splitext(name)[1] in SUFFIXES and not name.startswith("."):  # noqa: PTH122
                yield Path(where, name)


def not_found(path: Path) -> Problem:
    """Return the problem for a path that does not exist, with a file of that name nearby."""
    near = _nearby(path)
    hint = f"did you mean {near}?" if near else "paths are files or folders with *.yaml"
    return Problem(code="file_not_found", message=f"there is no file {path}", hint=hint)


def _nearby(path: Path) -> Path | None:
    """Return a file of the same name below the working folder, the nearest first."""
    names = {path.name} if path.suffix else {path.name + suffix for suffix in SUFFIXES}
    best: Path | None = None
    for count, file in enumerate(_below(Path())):
        if count >= _SEARCHED:
            break
        if file.name in names and (best is None or len(file.parts) < len(best.parts)):
            best = file
    return best
