r"""A file that is written through memory: whole after SIGKILL, and no system call for a line.

::

    {"scenario_record": 2, ...}\n["s", 0, ...]\n["c", 0, 0, 12]\n\0\0\0\0\0\0\0\0\0
    |<------------------- written ------------------->|<-- room -->|

What is written to shared memory is the file's own, whatever ends the process, but for the machine.
A file that is written is locked (`flock`), so that no other process begins it anew. Behind
its last line it has room, of zeros, which is cut off at its end.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from pathlib import Path

#: how the name of a file begins that an earlier start of the same rank has written
EARLIER = "earlier-"

#: bytes of room that a file begins with, and most that it grows by
FIRST, MOST_MORE = 1 << 16, 1 << 22


class MappedFile:
    """A file that lines are appended to, by any thread; a process that is forked leaves it alone.

    Where there is no room for more on the disk, nothing more is written.
    """

    def __init__(self, path: str) -> None:
        """Begin a file, in place of one that was left there; raises OSError.

        Beside one that another process writes it has that process's name, and its own number.
        """
        self.path = path
        self._file = _begin(path)
        if self._file < 0:
            stem, suffix = os.path.splitext(path)
            self.path = f"{stem}-{os.getpid()}{suffix}"
            self._file = _begin(self.path)
        os.posix_fallocate(self._file, 0, FIRST)
        self._memory = mmap.mmap(self._file, FIRST)
        self._write = self._memory.write
        self._is_over = False
        # a weak reference's callback may write while its thread grows the file
        self._growing = threading.RLock()
        os.register_at_fork(after_in_child=self._leave)

    def append(self, content: bytes) -> None:
        """Append bytes, whole."""
        try:
            self._write(content)  # one call of C: it is whole, or raises
        except ValueError:
            self._grow(content)

    def _grow(self, content: bytes) -> None:
        if self._is_over:
            return
        with self._growing:
            size = len(self._memory)
            room = size + max(min(size, MOST_MORE), len(content) + mmap.PAGESIZE)
            room -= room % mmap.PAGESIZE
            try:
                # a page without a place on the disk would end the process
                os.posix_fallocate(self._file, size, room - size)
                self._memory.resize(room)
            except OSError:
                self._is_over = True
                return
            self.append(content)

    def _leave(self) -> None:
        """Let go of the file: the process is another one now."""
        if not self._is_over:
            self._is_over = True
            self._memory.close()
            os.close(self._file)

    def close(self) -> None:
        """Cut the room off, and write nothing more."""
        with self._growing:
            if self._is_over:
                return
            self._is_over = True
            written = self._memory.tell()
            self._memory.close()
            os.ftruncate(self._file, written)
            os.close(self._file)


def _begin(path: str) -> int:
    """Return an empty file that is locked; -1 where another process writes one there."""
    if os.path.lexists(path):
        if is_written(Path(path)):
            return -1
        os.unlink(path)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    _is_locked(file)
    return file


def is_written(path: Path | str) -> bool:
    """Whether a process writes a file now."""
    try:
        file = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _is_locked(file)
    finally:
        os.close(file)


def _is_locked(file: int) -> bool:
    """Lock a file; whether another process has it locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # the file system has no locks
        pass
    return False


def count_written(path: Path, before: int = 0) -> int:
    """Return how many bytes of a file are written, at least those `before`; raises OSError.

    One that was begun anew has none of these.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(file).st_size < before:
            before = 0
        while part := os.pread(file, mmap.PAGESIZE, before):
            end = part.find(b"\0")
            if end >= 0:
                return before + end
            before += len(part)
    finally:
        os.close(file)
    return before
