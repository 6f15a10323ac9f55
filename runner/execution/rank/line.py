"""A worker's line to the store of its launch: opened once, cut only where a call hangs in it.

A group that not every member creates hangs in the store, on the main thread's own connection.
Shutting that connection's socket down is the one thing that makes such a call return.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import closing, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

#: seconds that torch's own calls on the store may take, unless they say otherwise
TIMEOUT_S = 60.0
DESCRIPTORS = "/proc/self/fd"


class Line:
    """One connection to the store, under the prefix of this launch."""

    def __init__(self, dist: ModuleType, prefix: str) -> None:
        """Connect where the launcher's variables say the store is."""
        before = _sockets()
        port = int(os.environ["MASTER_PORT"])
        dist_: Any = dist
        client = dist_.TCPStore(
            os.environ["MASTER_ADDR"],
            port,
            is_master=False,
            timeout=timedelta(seconds=TIMEOUT_S),
        )
        self.store: Any = dist_.PrefixStore(prefix, client)
        self._descriptors = [fd for fd in _sockets() - before if _leads_to(fd, port)]

    def cut(self) -> None:
        """Let whatever waits on this connection fail at once; the line is of no use afterwards."""
        for descriptor in self._descriptors:
            with suppress(OSError), closing(socket.socket(fileno=os.dup(descriptor))) as end:
                end.shutdown(socket.SHUT_RDWR)


def _sockets() -> set[int]:
    """Return the descriptors of this process that are sockets; none where /proc is not."""
    found = set()
    with suppress(OSError):
        for name in os.listdir(DESCRIPTORS):  # noqa: PTH208 -- names, not paths
            with suppress(OSError):
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    found.add(int(name))
    return found


def _leads_to(descriptor: int, port: int) -> bool:
    with suppress(OSError), closing(socket.socket(fileno=os.dup(descriptor))) as end:
        return bool(end.getpeername()[1] == port)
    return False
