"""What is kept of earlier runs and checks, in `.scenario/` beside the project.

    .scenario/last.json       what did not pass the last time it was run
    .scenario/checked.json    what did not pass the last time it was checked
    .scenario/proved.json     the files whose every case passed a check

The folder lies beside the nearest `pyproject.toml` or `.git` above the current folder, else in it,
and ignores itself in git. It is a convenience: where it cannot be read it is as if it were empty
(and that is said where it was asked for), where it cannot be written nothing is kept.
"""

from __future__ import annotations

import errno
import hashlib
import importlib
import json
import os
import platform
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import ml_dtypes
import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

import torch_scenarios
from torch_scenarios.files import RealPaths, replace_file
from torch_scenarios.pipeline import results
from torch_scenarios.source.documents import decode_json, read_document

FOLDER = ".scenario"
#: what marks the root of a project
_ROOTS = ("pyproject.toml", ".git")
#: stands for every case of a file that was invalid
_WHOLE = ""
_BAD = frozenset({"FAILED", "FLAKY", "INCONCLUSIVE", "INVALID"})

#: what listens to every run to remember something of it: `module:Class`, made with the folder
KEEPERS: tuple[str, ...] = (
    "torch_scenarios.pipeline.history:LastRun",
    "torch_scenarios.report.latest:LatestRun",
)


def folder_of(start: Path) -> Path:
    """Return where what is remembered lies for a command that is given in `start`."""
    parents = (start, *start.parents)
    root = next((each for each in parents if any((each / name).exists() for name in _ROOTS)), start)
    return root / FOLDER


def keepers(folder: Path) -> dict[str, results.Report]:
    """Return what listens to a run and remembers."""
    found: dict[str, results.Report] = {}
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


def read_kept(folder: Path, name: str) -> str:
    """Return the text of a file of the folder. Raises OSError, and ValueError for other bytes."""
    path = folder / name
    _police(folder, path)
    return read_document(path, follow=False).decode()


def _police(folder: Path, path: Path) -> None:
    """Raise OSError where the folder is a link, or a file in it is there and is no regular one."""
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "is a link or a file, not a folder", str(folder))
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(errno.ELOOP, "is a link, or no regular file", str(path))


#: what did not pass the last time it was run, and the last time it was checked
RUN, CHECKED = "last.json", "checked.json"


class FailedCases(Struct, frozen=True, kw_only=True):
    """What such a file holds: each file, relative to the project, and the case that failed.

    >>> FailedCases(failed=(("scenarios/sum.yaml", "n=2"),)).version
    1
    """

    format: Literal["scenario-last-run"] = "scenario-last-run"
    version: Literal[1] = 1
    failed: tuple[tuple[str, str], ...]


def read_failed(folder: Path, name: str = RUN) -> tuple[frozenset[results.Key], list[str]]:
    """Return the cases that did not pass when they last ran, and what a person should know."""
    real = RealPaths()
    try:
        failed = decode_json(read_kept(folder, name), FailedCases).failed
        return frozenset((real.of(folder.parent / file), case) for file, case in failed), []
    except FileNotFoundError:
        return frozenset(), []
    except OSError as error:
        reason = error.strerror
    except ValueError:
        reason = "is damaged, or of another version"
    return frozenset(), [f"what failed the last time is not known: {folder / name} {reason}"]


class LastRun(results.FinalReport):
    """Remembers the cases that did not pass. Those that a run did not reach stay as they were.

    run 1   a FAILED   b PASSED   c FAILED        failed: a, c
    run 2   a PASSED   (ended there)              failed: c
    """

    def __init__(self, folder: Path, name: str = RUN) -> None:
        """Remember in the file `name` of `folder`."""
        self._folder = folder
        self._name = name

    def end(self, outcome: results.Outcome) -> None:
        """Write what is known now."""
        known, _ = read_failed(self._folder, self._name)
        bad: set[results.Key] = set()
        real = RealPaths()
        for result in outcome.results:
            failing = result.verdict.status in _BAD
            if not known and not failing:
                continue  # there is nothing to forget of it
            path = real.of(Path(result.file))
            case = result.case if result.of_a_case else _WHOLE
            known -= {(path, case), (path, _WHOLE)}
            if failing:
                bad.add((path, case))
        entries = sorted(
            (os.path.relpath(path, self._folder.parent), case)
            for path, case in known | bad
            if Path(path).exists()
        )
        if not entries and not os.path.lexists(self._folder / self._name):
            return  # nothing to remember, nothing to forget
        text = json.dumps(asdict(FailedCases(failed=tuple(entries))), indent=1)
        with suppress(OSError):  # a folder that cannot be written
            keep(self._folder, self._name, text + "\n")


#: the files whose cases all passed a check
PROVED = "proved.json"
#: files that are kept: those that were found or proved last
MOST = 20_000
#: what may be the key of a step that uses another file
_USE = re.compile(rb"\buse\b")


class ProvedFiles(Struct, frozen=True, kw_only=True):
    """What the file holds: by the key of each scenario file the names of its cases.

    >>> ProvedFiles(files={"9b1e": ("sum[n=2]", "sum[n=4]")}).version
    1
    """

    format: Literal["scenario-proved"] = "scenario-proved"
    version: Literal[1] = 1
    files: Mapping[str, tuple[str, ...]]


class Proofs:
    """The proofs that a folder keeps, as one question sees them.

    A verdict depends on the text of the file, on the code that checks it, and on what was asked:
    the limits, `--set`, a backend, a version of torch. All of them make the key of a file, so that
    whatever changes, the entry is not found and the file is proved anew. Nothing is kept of a file
    with a case that does not pass or has a warning, since both are told each time, nor of one that
    uses another file (`use: {file: part.yaml}`), since its own text does not say what it does.
    """

    def __init__(
        self, folder: Path, selection: results.Selection, *, backend: str | None, torch: str | None
    ) -> None:
        """Read what the folder keeps; the rest is what every key depends on."""
        self._folder = folder
        asked = (
            *sorted(selection.sets.items()),
            selection.limits,
            selection.timeout_s,
            selection.backend,
            backend,
            torch,
        )
        self._asked = repr((*list_code(), *asked)).encode()
        self._files: dict[str, tuple[str, ...]] = {}
        with suppress(OSError, ValueError):
            self._files |= decode_json(read_kept(folder, PROVED), ProvedFiles).files

    def key_of(self, name: str, text: bytes) -> str:
        """Return the key of a scenario file; empty where its text alone does not say what it does.

        The name belongs to it: a case without a `name:` is called like its file.
        """
        if _USE.search(text):
            return ""
        return hashlib.blake2b(
            b"\0".join((self._asked, name.encode(errors="replace"), text)), digest_size=16
        ).hexdigest()

    def cases_of(self, key: str) -> tuple[str, ...]:
        """Return the cases of a file that was proved; empty where it was not."""
        return self._files.get(key, ())

    def keep(self, proved: Mapping[str, tuple[str, ...]]) -> None:
        """Keep the cases of files that have passed whole, now or before."""
        if proved.keys() <= self._files.keys():
            return  # nothing is new, and the order of what is old is as good
        others = {key: cases for key, cases in self._files.items() if key not in proved}
        newest = dict([*others.items(), *proved.items()][-MOST:])
        document = {"format": "scenario-proved", "version": 1, "files": newest}
        with suppress(OSError):  # a folder that cannot be written
            keep(self._folder, PROVED, json.dumps(document, indent=0) + "\n")


def list_code() -> Iterator[object]:
    """Yield what tells the code of this package, and what it computes with, from another."""
    yield from (platform.python_version(), np.__version__, ml_dtypes.__version__)
    package = Path(torch_scenarios.__file__).parent
    for path in sorted(package.rglob("*.py")):
        status = path.stat()
        yield path.relative_to(package).as_posix(), status.st_size, status.st_mtime_ns
