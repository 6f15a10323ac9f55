"""Files on disk: scenarios found below folders, files replaced whole, schemas."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from torch_scenarios.errors import Mark, Problem, ScenarioError, Source, make_warning
from torch_scenarios.limits import DEFAULT, Limits

# -------------------------------------------------------------------------------------------------
# A file is replaced whole or not at all: who reads it meanwhile sees the old one or the new.
#
# Until it is kept, a new file has no name (`O_TMPFILE`), so that nothing is left of it however its
# process ends. Where a file system has no such files it has the name `.NAME.XXXXXXXX.part`, and is
# locked; what a killed process left of that kind is swept away by the next one that writes NAME.

#: seconds after which a file that no process has locked is known to be left behind
STALE_S = 60.0
_RIGHTS = 0o666
_CHUNK = 1 << 20


class PendingFile:
    """A file that appears at `path`, a real path, when it is kept.

    `descriptor` is open for reading and writing, has the rights that the file there has or a new
    one would get, and is the caller's to close. Raises OSError where the folder takes no file.
    """

    def __init__(self, path: Path) -> None:
        """Open it."""
        self._path = path
        _remove_left(path)
        self._name: Path | None = None
        descriptor = _open_unnamed(path.parent)
        if descriptor is None:
            self._name, descriptor = _open_named(path)
        self.descriptor = descriptor
        with suppress(FileNotFoundError):
            os.fchmod(descriptor, stat.S_IMODE(path.stat().st_mode))

    def keep(self) -> None:
        """Let it take its place, with what was written to the descriptor. Raises OSError."""
        if self._name is None:
            if not self._path.exists() and _link(self.descriptor, self._path):
                return
            self._name = _part(self._path)
            if not _link(self.descriptor, self._name):
                self._name, copy = _open_named(self._path)
                _copy(self.descriptor, copy)
        self._name.replace(self._path)
        self._name = None

    def discard(self) -> None:
        """Leave no name behind; the descriptor is closed by the caller."""
        if self._name is not None:
            self._name.unlink(missing_ok=True)
            self._name = None


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write the file anew; its mode stays, and so does a link to it. Raises OSError.

    A `durable` one is on the disk before it takes the old one's place, so that a crash of the
    machine in between loses neither; what can be made again need not wait for the disk.
    """
    pending = PendingFile(path.resolve())
    with os.fdopen(pending.descriptor, "wb") as file:
        try:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            pending.keep()
        except BaseException:
            pending.discard()
            raise


# ---------------------------------------------------------------------------- names


def _open_unnamed(folder: Path) -> int | None:
    """Return a new file without a name; None where the system has none, or none can be named."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None:
        return None
    try:
        descriptor = os.open(folder, flag | os.O_RDWR | os.O_CLOEXEC, _RIGHTS)
    except OSError:
        return None  # what opens a named one says what is wrong
    if not os.path.lexists(_open_file(descriptor)):
        os.close(descriptor)
        return None
    return descriptor


def _open_file(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _link(descriptor: int, path: Path) -> bool:
    """Give an unnamed file a name; False where that name is taken or the system cannot."""
    try:
        # with a folder's descriptor, of which an absolute path has no use, Python calls `linkat`
        os.link(_open_file(descriptor), path, src_dir_fd=descriptor, follow_symlinks=True)
    except OSError:
        return False
    return True


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")


def _open_named(path: Path) -> tuple[Path, int]:
    name = _part(path)
    descriptor = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, _RIGHTS)
    with suppress(OSError):  # a file system without locks: its age alone protects it
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return name, descriptor


def _copy(source: int, target: int) -> None:
    try:
        os.lseek(source, 0, os.SEEK_SET)
        while chunk := os.read(source, _CHUNK):
            left = memoryview(chunk)
            while left:
                left = left[os.write(target, left) :]
        os.fchmod(target, stat.S_IMODE(os.fstat(source).st_mode))
    finally:
        os.close(target)


def _remove_left(path: Path) -> None:
    """Remove what processes that are gone left behind for this path."""
    left = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.part")
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if left.fullmatch(entry.name):
                _remove_stale(Path(entry.path))


def _remove_stale(path: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            age_s = time.time() - os.fstat(descriptor).st_mtime
            if age_s > STALE_S:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
        finally:
            os.close(descriptor)


# -------------------------------------------------------------------------------------------------
# Where the JSON Schemas and the example scenarios are that this package publishes.

#: an installed package holds the schemas; in a checkout they are in its top folder
FOLDERS = (Path(__file__).parent / "schemas", Path(__file__).parents[2] / "schemas")


def schema_file(name: str) -> Path:
    """Return where a schema file is."""
    return next((folder / name for folder in FOLDERS if (folder / name).is_file()), Path(name))


def corpus_folder() -> Path:
    """Return the folder of the example scenarios that come with the package."""
    folders = [folder.with_name("scenarios") for folder in FOLDERS]
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def examples_named(name: str) -> list[str]:
    """Return the examples of a name, as `groups/groups_even`; all of them for an empty one.

    A name may be given without its folder.
    """
    folder = corpus_folder()
    wanted = Path(name.removesuffix(".yaml")).parts
    found = (path.relative_to(folder).with_suffix("") for path in sorted(folder.rglob("*.yaml")))
    return [str(path) for path in found if path.parts[-len(wanted) :] == wanted or not wanted]


# -------------------------------------------------------------------------------------------------
# Which files are scenarios: those named, and those below the folders named; and what they hold.
#
# A file, or a link in its place, may come from a stranger: what is read is a regular file inside
# its project, and nothing else.

SUFFIXES = frozenset({".yaml", ".yml"})

#: folders that hold no scenarios, whatever lies in them
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages"})

#: how many files are looked at to find one of the same name
_SEARCHED = 20_000

#: bytes that are read at once: few files of scenarios hold more
_PART = 1 << 16

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
    real: RealPaths | None = None,
) -> tuple[Path, ...]:
    """Return the scenario files below some paths, sorted within each, each once.

    A file that is named is taken whatever it is called; in a folder all `*.yaml` and `*.yml` are,
    except in hidden folders. Libraries are among them: `load` checks them and returns no case.
    What is met in a folder and may not be read (see :func:`read_file`) is left out, with a warning
    in `passed_over`. What is known of `real` paths is used, and added to. Raises ScenarioError with
    every path that does not exist.
    """
    found: dict[str, Path] = {}
    problems: list[Problem] = []
    real = RealPaths() if real is None else real
    for path in _find(map(Path, paths), limits, problems, passed_over):
        found.setdefault(real.of(path), path)
    if problems:
        raise ScenarioError(problems)
    return tuple(found.values())


class RealPaths:
    """Where paths really lead; a folder that several of them are in is looked up once.

    >>> RealPaths().of(Path("/etc/../etc/hosts")) == os.path.realpath("/etc/../etc/hosts")
    True
    """

    def __init__(self) -> None:
        """Begin with no folder looked up."""
        self._folders: dict[str, str] = {}

    def of(self, path: Path) -> str:
        """Return the path without a link in it, as `os.path.realpath` does."""
        folder, name = os.path.split(path)
        if name in {"", ".."}:
            return os.path.realpath(path)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        place = f"{self._folders[folder].rstrip('/')}/{name}"
        return os.path.realpath(place) if path.is_symlink() else place


def _find(
    paths: Iterable[Path],
    limits: Limits,
    problems: list[Problem],
    passed_over: list[Problem] | None,
) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            if path.suffix in SUFFIXES:
                problems.append(_refuse_special_file(path, stat.S_IFDIR))
                continue
            for file in sorted(_list_files(path, problems, passed_over)):
                fault = _fault(file, limits)
                if fault is None:
                    yield file
                elif passed_over is not None:
                    passed_over.append(_report_passed_over(file, fault))
        elif path.exists():
            yield path
        else:
            problems.append(not_found(path))


def project_root(path: Path) -> Path:
    """Return the nearest folder above with a pyproject.toml or .git, else the file's own."""
    own = folder = os.path.realpath(path.parent)
    while not any(os.path.exists(f"{folder}/{sign}") for sign in _ROOT_SIGNS):
        folder, below = os.path.split(folder)
        if not below:
            return Path(own)
    return Path(folder)


def read_file(path: Path, limits: Limits = DEFAULT, root: Path | None = None) -> bytes:
    """Return the bytes of a file, one more than is allowed at most.

    A scenario may come from a stranger, as may a link in its place: only a regular file inside the
    project is read, whatever changes meanwhile. `root` is the project's folder, that of the file
    itself if left out; `--follow-links` lets a link lead elsewhere. Raises ScenarioError.
    """
    real = os.path.realpath(path)
    if os.path.lexists(path) and (fault := _fault(path, limits, root)) is not None:
        raise ScenarioError([fault])
    try:
        opened = open_regular(Path(real), follow=False)
    except FileNotFoundError:
        raise ScenarioError([not_found(path)]) from None
    except (OSError, ValueError) as error:
        raise ScenarioError([_unreadable(path, _word_error(error))]) from None
    try:
        if not limits.follow_links and not _is_inside(_place(opened, path), path, root):
            raise ScenarioError([_refuse_outside(path)])
        return read_open(opened, limits.max_file_bytes + 1)
    except OSError as error:
        raise ScenarioError([_unreadable(path, _word_error(error))]) from None
    finally:
        os.close(opened)


def open_regular(path: Path, *, follow: bool = True) -> int:
    """Return the descriptor of a regular file, open for reading; the caller closes it.

    What is there is opened without waiting for it, and looked at once it is open. A link in the
    place of the file is followed unless `follow` says otherwise. Raises OSError.
    """
    link = 0 if follow else os.O_NOFOLLOW
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | link
    opened = os.open(path, flags)
    kind = stat.S_IFMT(os.fstat(opened).st_mode)
    if kind != stat.S_IFREG:
        os.close(opened)
        raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'something else')}", str(path))
    return opened


def read_open(opened: int, most: int) -> bytes:
    """Return what an open file holds, its first `most` bytes at most; memory for those it has."""
    parts, left = [], most
    while left and (part := os.read(opened, min(left, _PART))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _word_error(error: OSError | ValueError) -> str:
    return f"the file cannot be read: {getattr(error, 'strerror', None) or error}"


def _place(opened: int, path: Path) -> str:
    """Return where an open file lies; by its name again where the system does not tell."""
    try:
        return os.readlink(f"/proc/self/fd/{opened}")
    except OSError:
        return os.path.realpath(path)


def _is_inside(place: str, path: Path, root: Path | None) -> bool:
    """Return whether a real path lies in the project of the file that is named `path`."""
    if root is not None:
        return Path(place).is_relative_to(root)
    folder = os.path.dirname(place)
    # a file in the folder where it is named is inside of that folder's project, whichever that is
    return folder == os.path.realpath(path.parent) or Path(place).is_relative_to(project_root(path))


def _fault(path: Path, limits: Limits, root: Path | None = None) -> Problem | None:
    """Return why a file may not be read, without opening it; None for one that may."""
    try:
        kind = stat.S_IFMT(os.lstat(path).st_mode)
        if kind == stat.S_IFREG:
            return None
        kind = stat.S_IFMT(path.stat().st_mode)
    except (OSError, ValueError) as error:
        return _unreadable(path, f"it leads nowhere: {getattr(error, 'strerror', None) or error}")
    if kind != stat.S_IFREG:
        return _refuse_special_file(path, kind)
    if limits.follow_links or _is_inside(os.path.realpath(path), path, root):
        return None
    return _refuse_outside(path)


def _refuse_outside(path: Path) -> Problem:
    return Problem(
        code="link_outside_project",
        message="the file is a link that leads out of its project",
        mark=Mark(source=Source(path=str(path), text=""), line=1, column=1),
        hint="copy the file into the project, or pass --follow-links for files that you trust",
    )


def _refuse_special_file(path: Path, kind: int) -> Problem:
    what = _KINDS.get(kind, "something else")
    return _unreadable(path, f"it is {what}, and a scenario is a regular file")


def _unreadable(path: Path, message: str) -> Problem:
    mark = Mark(source=Source(path=str(path), text=""), line=1, column=1)
    return Problem(code="unreadable_file", message=message, mark=mark)


def _report_passed_over(path: Path, fault: Problem) -> Problem:
    message = f"{path} is passed over: {fault.message}"
    return make_warning("file_passed_over", message, fault.mark, fault.hint)


def _list_files(
    folder: Path,
    problems: list[Problem] | None = None,
    passed_over: list[Problem] | None = None,
) -> Iterator[Path]:
    """Yield the scenario files below a folder, in their order; what cannot be read is noted."""

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
        for name in [name for name in folders if os.path.splitext(name)[1] in SUFFIXES]:
            folders.remove(name)
            if passed_over is not None:
                path = Path(where, name)
                passed_over.append(
                    _report_passed_over(path, _refuse_special_file(path, stat.S_IFDIR))
                )
        for name in sorted(files):
            if os.path.splitext(name)[1] in SUFFIXES and not name.startswith("."):
                yield Path(where, name)


def not_found(path: Path) -> Problem:
    """Return the problem for a path that does not exist, with a file of that name nearby."""
    near = _nearby(path)
    hint = f"did you mean {near}?" if near else "paths are files or folders with *.yaml"
    examples = [] if near or path.is_absolute() else examples_named(str(path))
    if examples:
        copied = f"`scenario new {path.stem} --from {examples[0]}`"
        hint = f"an example of this name comes with the package: {copied} copies it here"
    return Problem(code="file_not_found", message=f"there is no file {path}", hint=hint)


def _nearby(path: Path) -> Path | None:
    """Return a file of the same name below the working folder, the nearest first."""
    names = {path.name} if path.suffix else {path.name + suffix for suffix in SUFFIXES}
    best: Path | None = None
    for count, file in enumerate(_list_files(Path())):
        if count >= _SEARCHED:
            break
        if file.name in names and (best is None or len(file.parts) < len(best.parts)):
            best = file
    return best
