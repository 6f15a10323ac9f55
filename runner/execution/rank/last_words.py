"""What a dying worker leaves behind: its account, and what its last moment printed.

Gloo aborts the process, uncatchably, when a message is larger than the buffer that waits for it.
`abort` raises SIGABRT in the thread at fault and waits for the handler: this one gives the rank's
account and lets the process die as it would have.
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
#: bytes of standard error that are kept
TAIL = 4000
PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent's thread ends (Linux; elsewhere nothing)."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (AttributeError, OSError):
        return


class StandardError:
    """Standard error kept in memory: what torch and Gloo print belongs to a rank's account."""

    def __init__(self) -> None:
        """Let descriptor 2 lead into anonymous memory; no file is left behind, however it ends."""
        self._fd = os.memfd_create("stderr")
        os.dup2(self._fd, 2)

    def clear(self) -> None:
        """Forget what was printed."""
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)

    def tail(self) -> str:
        """Return the end of what was printed."""
        size = os.fstat(self._fd).st_size
        return os.pread(self._fd, TAIL, max(0, size - TAIL)).decode(errors="replace").strip()


class LastWords:
    """Calls `speak` when the process aborts, in the thread that aborts."""

    def __init__(self, speak: Callable[[], None]) -> None:
        """Install the handler; this object must live as long as the process."""
        self._spoken = False
        self._speak = speak
        self._handler: Any = HANDLER(self._on_abort)
        ctypes.CDLL(None).signal(int(signal.SIGABRT), self._handler)

    def _on_abort(self, _signal: int) -> None:
        if not self._spoken:
            self._spoken = True
            self._speak()
