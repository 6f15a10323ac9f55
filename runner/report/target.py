"""Where a report goes: a file that appears whole or not at all, a stream, standard output.

A target is opened before anything runs, so that a path that cannot be written is told at once. A
regular file is written beside its place and renamed at the end; until then, and for ever where the
run fails, what stood there before stays.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

STANDARD_OUTPUT = "-"
#: names of files that are open already; /dev/stderr may lead to a file that others write to
_OPEN_FILES = ("/dev/std", "/dev/fd/", "/proc/")


class Target:
    """One open file that a report writes to. Raises OSError where `path` cannot be written."""

    def __init__(self, path: str, *, streams: bool = False) -> None:
        """Open it: beside its place, or in place where it `streams` or is no regular file."""
        self.path = path
        self._final = Path(os.path.realpath(path))
        self._beside: Path | None = None
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
            self._beside, self.file = _beside(self._final)

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
        self.file.close()
        if self._beside is not None:
            self._beside.replace(self._final)
            self._beside = None

    def discard(self) -> None:
        """Leave nothing behind of what was not kept."""
        if self.path == STANDARD_OUTPUT:
            return
        with suppress(OSError):  # a full disk, told already
            self.file.close()
        if self._beside is not None:
            self._beside.unlink(missing_ok=True)
            self._beside = None
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


def _beside(path: Path) -> tuple[Path | None, TextIO]:
    """Open a new file beside `path`, with the rights that `path` has or would get."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        file = beside.open("x", encoding="utf-8", newline="\n")
    except PermissionError:
        # a folder that takes no new file may still hold one that can be written
        if not path.exists():
            raise
        return None, path.open("r+", encoding="utf-8", newline="\n")
    if path.exists():
        if not os.access(path, os.W_OK):
            file.close()
            beside.unlink()
            raise PermissionError(13, os.strerror(13), str(path))
        beside.chmod(stat.S_IMODE(path.stat().st_mode))
    return beside, file
