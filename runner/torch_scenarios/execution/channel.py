"""Whole messages over a socket pair, to a process that may stop in the midst of one."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Callable

#: the length of a message, in bytes, before it
LENGTH = struct.Struct("!Q")
#: bytes that are read at once
CHUNK = 1 << 20
#: seconds without a byte before `idle` is called
IDLE_S = 1.0


class Channel:
    """One end: sends and receives bytes. A peer that is gone raises EOFError, or OSError.

    >>> one, two = map(Channel, socket.socketpair())
    >>> one.send(b"an order")
    >>> bytes(two.receive())
    b'an order'
    >>> one.close()
    >>> two.receive()
    Traceback (most recent call last):
        ...
    EOFError
    >>> two.close()
    """

    def __init__(self, end: socket.socket, idle: Callable[[], None] = lambda: None) -> None:
        """Own the socket; `idle` is called once a second while nothing moves, and may raise."""
        self._end = end
        self._idle = idle
        end.settimeout(0)

    def send(self, message: bytes) -> None:
        """Send one message."""
        for part in (LENGTH.pack(len(message)), message):
            left = memoryview(part)
            while left:
                try:
                    left = left[self._end.send(left) :]
                except BlockingIOError:
                    self._wait(sends=True)

    def receive(self) -> bytearray:
        """Wait for one message."""
        (size,) = LENGTH.unpack(self._take(LENGTH.size))
        return self._take(size)

    def _take(self, size: int) -> bytearray:
        message = bytearray(size)
        left = memoryview(message)
        while left:
            try:
                count = self._end.recv_into(left, min(len(left), CHUNK))
            except BlockingIOError:
                self._wait(sends=False)
                continue
            if not count:
                raise EOFError
            left = left[count:]
        return message

    def _wait(self, *, sends: bool) -> None:
        """Wait until bytes can move."""
        ready = select.poll()  # unlike `select` it takes any descriptor
        ready.register(self._end, select.POLLOUT if sends else select.POLLIN)
        while not ready.poll(1000 * IDLE_S):
            self._idle()

    def close(self) -> None:
        """Close the socket."""
        self._end.close()
