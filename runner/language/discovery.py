"""Which files are scenarios: those named, and those below the folders named; and what they hold.

A file, or a link in its place, may come from a stranger: what is read is a regular file inside its
project, and nothing else.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from runner.language.limits import DEFAULT, Limits
from runner.problems import Mark, Problem, ScenarioError, Source, warning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SUFFIXES = frozenset({".yaml", ".yml"})

#: folders that hold no scenarios, whatever lies in them
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages"})

#: how many files are looked at to find one of the same name
_SEARCHED = 20_000


#: what a path may lead to instead of a regular file
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
_ROOT_SIGNS = ("pyproject.toml", ".git")


def discover(
    paths: Iterable[str | Path],
    limits: Limits = DEFAULT,
    passed_over: list[Problem] | None = None,
) -> tuple[Path, ...]:
    """Return the scenario files below some paths, sorted within each, each once.

    A file that is named is taken whatever it is called; in a folder all `*.yaml` and `*.yml` are,
    except in hidden folders. Libraries are among them: `load` checks them and returns no case.
    What is met in a folder and may not be read (see :func:`read_file`) is left out, with a warning
    in `passed_over`. Raises ScenarioError with every path that does not exist.
    """
    found: dict[str, Path] = {}
    problems: list[Problem] = []
    for path in map(Path, paths):
        if path.is_dir() and path.suffix in SUFFIXES:
            problems.append(_no_regular_file(path, stat.S_IFDIR))
        elif path.is_dir():
            for file in sorted(_below(path, problems, passed_over)):
                fault = _fault(file, limits)
                if fault is None:
                    found.setdefault(os.path.realpath(file), file)
                elif passed_over is not None:
                    passed_over.append(_passed_over(file, fault))
        elif path.exists():
            found.setdefault(os.path.realpath(path), path)
        else:
            problems.append(not_found(path))
    if problems:
        raise ScenarioError(problems)
    return tuple(found.values())


def project_root(path: Path) -> Path:
    """Return the nearest folder above with a pyproject.toml or .git, else the file's own."""
    folder = Path(os.path.realpath(path.parent))
    for candidate in (folder, *folder.parents):
        if any((candidate / sign).exists() for sign in _ROOT_SIGNS):
            return candidate
    return folder


def read_file(path: Path, limits: Limits = DEFAULT, root: Path | None = None) -> bytes:
    """Return the bytes of a file, one more than is allowed at most.

    A scenario may come from a stranger, as may a link in its place: only a regular file inside the
    project is read, whatever changes meanwhile. `root` is the project's folder, that of the file
    itself if left out; `--follow-links` lets a link lead elsewhere. Raises ScenarioError.
    """
    if os.path.lexists(path) and (fault := _fault(path, limits, root)) is not None:
        raise ScenarioError([fault])
    try:
        # what stands there by now is opened without waiting for it, and looked at once it is open
        opened = os.open(
            os.path.realpath(path),
            os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW,
        )
    except FileNotFoundError:
        raise ScenarioError([not_found(path)]) from None
    except (OSError, ValueError) as error:
        raise ScenarioError([_unreadable(path, _because(error))]) from None
    try:
        kind = stat.S_IFMT(os.fstat(opened).st_mode)
        if kind != stat.S_IFREG:
            raise ScenarioError([_no_regular_file(path, kind)])
        within = project_root(path) if root is None else root
        if not limits.follow_links and not _place(opened, path).is_relative_to(within):
            raise ScenarioError([_outside(path)])
        with os.fdopen(opened, "rb", closefd=False) as file:
            return file.read(limits.max_file_bytes + 1)
    except OSError as error:
        raise ScenarioError([_unreadable(path, _because(error))]) from None
    finally:
        os.close(opened)


def _because(error: OSError | ValueError) -> str:
    return f"the file cannot be read: {getattr(error, 'strerror', None) or error}"


def _place(opened: int, path: Path) -> Path:
    """Return where an open file lies; by its name again where the system does not tell."""
    try:
        return Path(f"/proc/self/fd/{opened}").readlink()
    except OSError:
        return Path(os.path.realpath(path))


def _fault(path: Path, limits: Limits, root: Path | None = None) -> Problem | None:
    """Return why a file may not be read, without opening it; None for one that may."""
    try:
        kind = stat.S_IFMT(path.lstat().st_mode)
        if kind == stat.S_IFREG:
            return None
        kind = stat.S_IFMT(path.stat().st_mode)
    except (OSError, ValueError) as error:
        return _unreadable(path, f"it leads nowhere: {getattr(error, 'strerror', None) or error}")
    if kind != stat.S_IFREG:
        return _no_regular_file(path, kind)
    real = Path(os.path.realpath(path))
    if limits.follow_links or real.is_relative_to(root or project_root(path)):
        return None
    return _outside(path)


def _outside(path: Path) -> Problem:
    return Problem(
        code="link_outside_project",
        message="the file is a link that leads out of its project",
        mark=Mark(source=Source(path=str(path), text=""), line=1, column=1),
        hint="copy the file into the project, or pass --follow-links for files that you trust",
    )


def _no_regular_file(path: Path, kind: int) -> Problem:
    what = _KINDS.get(kind, "something else")
    return _unreadable(path, f"it is {what}, and a scenario is a regular file")


def _unreadable(path: Path, message: str) -> Problem:
    mark = Mark(source=Source(path=str(path), text=""), line=1, column=1)
    return Problem(code="unreadable_file", message=message, mark=mark)


def _passed_over(path: Path, fault: Problem) -> Problem:
    message = f"{path} is passed over: {fault.message}"
    return warning("file_passed_over", message, fault.mark, fault.hint)


def _below(
    folder: Path,
    problems: list[Problem] | None = None,
    passed_over: list[Problem] | None = None,
) -> Iterator[Path]:
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
        for name in [name for name in folders if os.path.splitext(name)[1] in SUFFIXES]:  # noqa: PTH122
            folders.remove(name)
            if passed_over is not None:
                path = Path(where, name)
                passed_over.append(_passed_over(path, _no_regular_file(path, stat.S_IFDIR)))
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
