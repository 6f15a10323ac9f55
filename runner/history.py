"""What is remembered of the last run: which cases did not pass, in `.scenario/` beside the project.

The folder lies beside the nearest `pyproject.toml` or `.git` above the current folder, else in it,
and ignores itself in git. It is a convenience: where it cannot be read it is as if it were empty
(and that is said where it was asked for), where it cannot be written nothing is remembered.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.replacing import replace_file
from runner.report.at_end import AtEnd

if TYPE_CHECKING:
    from runner.results import Key, Outcome, Report

FOLDER = ".scenario"
VERSION = 1
#: what marks the root of a project
_ROOTS = ("pyproject.toml", ".git")
_FORMAT = "scenario-last-run"
#: stands for every case of a file that was invalid
_WHOLE = ""
_BAD = frozenset({"FAILED", "FLAKY", "INCONCLUSIVE", "INVALID"})

#: what listens to every run to remember something of it: `module:Class`, made with the folder
KEEPERS: tuple[str, ...] = ("runner.history:LastRun", "runner.report.latest:LatestRun")


def folder_of(start: Path) -> Path:
    """Return where what is remembered lies for a command that is given in `start`."""
    parents = (start, *start.parents)
    root = next((each for each in parents if any((each / name).exists() for name in _ROOTS)), start)
    return root / FOLDER


def keepers(folder: Path) -> dict[str, Report]:
    """Return what listens to a run and remembers."""
    found: dict[str, Report] = {}
    for name in KEEPERS:
        module, _, made = name.partition(":")
        found[name] = getattr(importlib.import_module(module), made)(folder)
    return found


def keep(folder: Path, name: str, text: str) -> None:
    """Write a file of the folder, whole or not at all. Raises OSError.

    The folder may have come with a stranger's files: nothing is written through a link.
    """
    folder.mkdir(exist_ok=True)
    ignore = folder / ".gitignore"
    for path in (folder / name, ignore):
        _police(folder, path)
    if not os.path.lexists(ignore):
        ignore.write_text("# made by scenario run\n*\n", encoding="utf-8")
    replace_file(folder / name, text.encode(), durable=False)


def kept(folder: Path, name: str) -> str:
    """Return the text of a file of the folder. Raises OSError, and ValueError for other bytes."""
    path = folder / name
    _police(folder, path)
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    with os.fdopen(opened, encoding="utf-8") as file:
        return file.read()


def _police(folder: Path, path: Path) -> None:
    """Raise OSError where the folder is a link, or a file in it is there and is no regular one."""
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "is no folder of its own", str(folder))
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(errno.ELOOP, "is a link, or no regular file", str(path))


# ---------------------------------------------------------------------------- what failed

_FILE = "last.json"


def failed(folder: Path) -> tuple[frozenset[Key], list[str]]:
    """Return the cases that did not pass when they last ran, and what a person should know."""
    try:
        entries = _entries(folder)
    except FileNotFoundError:
        return frozenset(), []
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return frozenset(), [f"what failed the last time is not known: {folder / _FILE} {reason}"]
    return frozenset(_key(folder, file, case) for file, case in entries), []


class LastRun(AtEnd):
    """Remembers the cases that did not pass. Those that a run did not reach stay as they were."""

    def __init__(self, folder: Path) -> None:
        """Remember in `folder`."""
        self._folder = folder

    def end(self, outcome: Outcome) -> None:
        """Write what is known now."""
        known, _ = failed(self._folder)
        bad: set[Key] = set()
        for result in outcome.results:
            path = str(Path(result.file).resolve())
            case = _WHOLE if result.case == result.file else result.case
            known -= {(path, case), (path, _WHOLE)}
            if result.verdict.status in _BAD:
                bad.add((path, case))
        entries = sorted(
            (os.path.relpath(path, self._folder.parent), case)
            for path, case in known | bad
            if Path(path).exists()
        )
        if not entries and not os.path.lexists(self._folder / _FILE):
            return  # nothing to remember, nothing to forget
        text = json.dumps({"format": _FORMAT, "version": VERSION, "failed": entries}, indent=1)
        with suppress(OSError):  # a folder that cannot be written
            keep(self._folder, _FILE, text + "\n")


def _entries(folder: Path) -> list[tuple[str, str]]:
    """Return files, relative to the folder's own, and cases. Raises OSError or ValueError."""
    try:
        found: Any = json.loads(kept(folder, _FILE))
    except ValueError as error:
        message = "is not as it was written"
        raise ValueError(message) from error
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        message = "is not ours"
        raise ValueError(message)
    if found.get("version") != VERSION:
        message = f"is of version {found.get('version')}, and this one reads {VERSION}"
        raise ValueError(message)
    try:
        return [(str(file), str(case)) for file, case in found["failed"]]
    except (KeyError, TypeError, ValueError) as error:
        message = "is not as it was written"
        raise ValueError(message) from error


def _key(folder: Path, file: str, case: str) -> Key:
    return str((folder.parent / file).resolve()), case
