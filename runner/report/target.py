"""Where a report goes: a file that appears whole or not at all, a stream, standard output.

A target is opened before anything runs, so that a path that cannot be written is told at once. A
regular file is written without a name (:mod:`runner.replacing`) and gets it at the end; until then,
and for ever where the run fails, what stood there before stays.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from runner.replacing import PendingFile

if TYPE_CHECKING:
    from typing import TextIO

STANDARD_OUTPUT = "-"
#: names of files that are open already; /dev/stderr may lead to a file that others write to
_OPEN_FILES = ("/dev/std", "/dev/fd/", "/proc/")


class Target:
    """One open file that a report writes to. Raises OSError where `path` cannot be written."""

    def __init__(self, path: str, *, streams: bool = False) -> None:
        """Open it: a new file, or the one in place where it `streams` or is no regular file."""
        self.path = path
        self._final = Path(os.path.realpath(path))
        self._pending: PendingFile | None = None
        self._new = False
        self.file: TextIO
        self._special = _special(Path(path))
        if path == STANDARD_OUTPUT:
            self.file = sys.stdout
        elif self._special:
            self.file = Path(path).open("a", encoding="utf-8", newline="\n")  # noqa: SIM115 -- kept
        elif streams:
            self._new = not self._final.exists()
            # what stands there is cut off only once something is written
            self.file = self._final.open("a", encoding="utf-8", newline="\n")
        else:
            self._pending, self.file = _pending(self._final)

    @property
    def identity(self) -> str:
        """What two targets have in common where they would write to one place."""
        return STANDARD_OUTPUT if self.path == STANDARD_OUTPUT else str(self._final)

    def start(self) -> None:
        """Be empty: from now on it is written to. Raises OSError."""
        self._new = False
        if self.path != STANDARD_OUTPUT and not self._special:
            self.file.truncate(0)

    def keep(self) -> None:
        """Let what was written appear in its place. Raises OSError."""
        self.file.flush()
        if self.path == STANDARD_OUTPUT:
            return
        if self._pending is not None:
            self._pending.keep()
            self._pending = None
        self.file.close()

    def discard(self) -> None:
        """Leave nothing behind of what was not kept."""
        if self.path == STANDARD_OUTPUT:
            return
        with suppress(OSError):  # a full disk, told already
            self.file.close()
        if self._pending is not None:
            self._pending.discard()
            self._pending = None
        if self._new:
            self._final.unlink(missing_ok=True)


def _special(path: Path) -> bool:
    """Return whether a path is a pipe, a device or an open file, which no rename may replace."""
    if str(path).startswith(_OPEN_FILES):
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _pending(path: Path) -> tuple[PendingFile | None, TextIO]:
    """Open a new file for `path`, or `path` itself in a folder that takes no new one."""
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(13, os.strerror(13), str(path))
    try:
        pending = PendingFile(path)
    except PermissionError:
        # a folder that takes no new file may still hold one that can be written
        if not path.exists():
            raise
        return None, path.open("r+", encoding="utf-8", newline="\n")
    return pending, os.fdopen(pending.descriptor, "w", encoding="utf-8", newline="\n")
