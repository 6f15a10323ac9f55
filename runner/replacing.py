"""A file is replaced whole or not at all: who reads it meanwhile sees the old one or the new.

Until it is kept, a new file has no name (`O_TMPFILE`), so that nothing is left of it however its
process ends. Where a file system has no such files it has the name `.NAME.XXXXXXXX.part`, and is
locked; what a killed process left of that kind is swept away by the next one that writes NAME.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path

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
        _sweep(path)
        self._name: Path | None = None
        descriptor = _unnamed(path.parent)
        if descriptor is None:
            self._name, descriptor = _named(path)
        self.descriptor = descriptor
        with suppress(FileNotFoundError):
            os.fchmod(descriptor, stat.S_IMODE(path.stat().st_mode))

    def keep(self) -> None:
        """Let it take its place, with what was written to the descriptor. Raises OSError."""
        if self._name is None:
            if not self._path.exists() and _linked(self.descriptor, self._path):
                return
            self._name = _part(self._path)
            if not _linked(self.descriptor, self._name):
                self._name, copy = _named(self._path)
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


def _unnamed(folder: Path) -> int | None:
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


def _linked(descriptor: int, path: Path) -> bool:
    """Give an unnamed file a name; False where that name is taken or the system cannot."""
    try:
        # with a folder's descriptor, of which an absolute path has no use, Python calls `linkat`
        os.link(_open_file(descriptor), path, src_dir_fd=descriptor, follow_symlinks=True)
    except OSError:
        return False
    return True


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


def _named(path: Path) -> tuple[Path, int]:
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


def _sweep(path: Path) -> None:
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
