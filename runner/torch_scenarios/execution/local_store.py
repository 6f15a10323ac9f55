"""The store of a launch on one machine: values in the memory of one process, sockets to it.

    supervisor --- LocalStore (this process) ===unix socket=== LocalStoreClient (a worker)

The socket has no file and no port: its name is the kernel's, and lives as long as its process. Each
end asks the kernel whose process the other one is, and lets in none of another user; a line begins
with the secret of the launch. It answers as torch's stores do
(:class:`torch_scenarios.execution.protocol.Store`). Knows no scenario and no torch.
"""

from __future__ import annotations

import hmac
import os
import selectors
import socket
import struct
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from torch_scenarios.errors import LaunchError
from torch_scenarios.execution.letters import Secret

#: the length of a message, in bytes, before it
_LENGTH = struct.Struct("!I")
#: bytes of a message at most; a value has a half of that at most (`protocol.PIECE`)
LARGEST = 8 << 20
#: bytes that are read at once
_CHUNK = 1 << 18
#: lines that wait to be let in
_BACKLOG = 512
#: seconds that a worker waits for the local store to let it in
_OPENS_S = 30.0
#: who the kernel says is at the other end of a socket: process, user, group
_PEER = struct.Struct("3i")


def peer_of(end: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end of a unix socket, as the kernel knows them.

    They are those of the process that connected, or that listened.
    """
    found = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    process, user, _ = _PEER.unpack(found)
    return process, user


def is_ours(end: socket.socket) -> bool:
    """Return whether the process at the other end of a unix socket is this user's."""
    return peer_of(end)[1] == os.geteuid()


class Request(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a worker asks. `amount` is added to a counter, or the seconds of a wait.

    >>> Request(what="add", key="scenario/1/slots", amount=1).amount
    1

    It is decoded into this and nothing else: an unknown word, a field too many or a key that is too
    long ends the line.
    """

    what: Literal["set", "get", "add", "await", "check", "look", "delete"]
    key: Annotated[str, Meta(max_length=4096)]
    value: bytes = b""
    amount: int | float = 0


_REQUESTS = msgspec.msgpack.Decoder(Request)
_ANSWERS = msgspec.msgpack.Decoder(bytes | bool | int | None)
_encode = msgspec.msgpack.Encoder().encode


class LocalStoreAddress(Struct, frozen=True, kw_only=True):
    """Where a local store is, and the secret of its launch; a fork or an environment hands it on.

    It is on no command line: every user of the machine can read those.
    """

    name: bytes
    key: bytes


class _Guest:
    """One line as the local store has it: what came, and what waits to be sent."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.came = bytearray()
        self.leaves = bytearray()
        self.is_known = False
        #: the key that it waits for, and until when it does
        self.key = ""
        self.until_s = 0.0


class LocalStore:
    """A store that this process has, and that the workers of its launch ask.

    On one machine it takes the place of torch's TCPStore for everything but process groups: a value
    is an entry of a dictionary here, and the supervisor waits on a condition and not on a socket.
    """

    def __init__(self, secret: Secret) -> None:
        """Open the door; no worker is let in before :meth:`start`. Raises OSError."""
        self._secret = secret
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._waiting: dict[str, list[_Guest]] = {}
        self._guests: set[_Guest] = set()
        self._over = False
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind("")  # the kernel gives a name that no file stands for
        self._door.listen(_BACKLOG)
        self._door.settimeout(0)
        self._ears = selectors.DefaultSelector()
        self._ears.register(self._door, selectors.EVENT_READ)
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ears.register(self._bell, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="local_store", daemon=True)

    @property
    def address(self) -> LocalStoreAddress:
        """Where a worker finds it."""
        return LocalStoreAddress(name=self._door.getsockname(), key=self._secret.key)

    @property
    def descriptors(self) -> tuple[int, int]:
        """What a forked worker must not keep open."""
        return self._door.fileno(), self._bell

    def start(self) -> None:
        """Let workers in from now on."""
        self._thread.start()

    def close(self) -> None:
        """End every line, and what waits on one."""
        self._over = True
        self._ring()
        if self._thread.ident is not None:
            self._thread.join()
        for guest in self._guests:
            guest.line.close()
        self._door.close()
        self._ears.close()
        os.close(self._bell)

    # ------------------------------------------------------------------ the store, in this process

    def set(self, key: str, value: bytes, /) -> None:
        """Store a value."""
        with self._changed:
            self._put(key, value)

    def get(self, key: str, /) -> bytes:
        """Wait for a value, and return it."""
        with self._changed:
            self._changed.wait_for(lambda: key in self._values)
            return self._values[key]

    def multi_get(self, keys: list[str], /) -> list[bytes]:
        """Wait for several values, and return them."""
        return [self.get(key) for key in keys]

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter and return it."""
        with self._changed:
            return self._add(key, amount)

    def wait(self, keys: list[str], timeout: timedelta, /) -> None:
        """Wait until all keys are there. Raises RuntimeError once the time is over."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: all(key in self._values for key in keys), timeout.total_seconds()
            ):
                raise RuntimeError(_word_timeout(keys))

    def check(self, keys: list[str], /) -> bool:
        """Return whether all keys are there."""
        with self._changed:
            return all(key in self._values for key in keys)

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Return the value that is there, `expected` where there is none; change nothing."""
        assert expected == desired
        with self._changed:
            return self._values.get(key, expected.encode())

    def delete_key(self, key: str, /) -> bool:
        """Take a value away."""
        with self._changed:
            return self._values.pop(key, None) is not None

    def _put(self, key: str, value: bytes) -> None:
        self._values[key] = value
        for guest in self._waiting.pop(key, ()):
            guest.key = ""
            self._answer(guest, value)
        self._changed.notify_all()

    def _add(self, key: str, amount: int) -> int:
        total = int(self._values.get(key, b"0")) + amount
        self._put(key, str(total).encode())
        return total

    # ------------------------------------------------------------------ the lines

    def _serve(self) -> None:
        """Answer the workers until it is over."""
        while not self._over:
            for ready, events in self._ears.select(self._pause_s()):
                if ready.fileobj is self._door:
                    self._let_in()
                elif ready.fd == self._bell:
                    with suppress(BlockingIOError):
                        os.eventfd_read(self._bell)
                    self._look_for_output()
                else:
                    self._move(ready.data, events)
            self._give_up_waits()

    def _let_in(self) -> None:
        with suppress(BlockingIOError):
            line, _ = self._door.accept()
            if not is_ours(line):
                line.close()
                return
            line.settimeout(0)
            guest = _Guest(line)
            self._guests.add(guest)
            self._ears.register(line, selectors.EVENT_READ, guest)

    def _move(self, guest: _Guest, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                with self._changed:
                    self._send(guest)
            if events & selectors.EVENT_READ:
                came = guest.line.recv(_CHUNK)
                if not came:
                    self._drop(guest)
                    return
                guest.came += came
                self._hear(guest)
        except BlockingIOError:
            return
        except (OSError, EOFError, ValueError):
            self._drop(guest)

    def _hear(self, guest: _Guest) -> None:
        """Answer what came whole. Raises EOFError or ValueError for what no worker sends."""
        came, start = guest.came, 0
        if not guest.is_known:
            size = len(self._secret.key)
            if len(came) < size:
                return
            if not hmac.compare_digest(bytes(came[:size]), self._secret.key):
                raise EOFError
            guest.is_known, start = True, size
        while len(came) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(came, start)
            if size > LARGEST:
                raise EOFError
            end = start + _LENGTH.size + size
            if len(came) < end:
                break
            request = _REQUESTS.decode(memoryview(came)[start + _LENGTH.size : end])
            with self._changed:
                self._do(guest, request)
            start = end
        if start:
            del came[:start]

    def _do(self, guest: _Guest, request: Request) -> None:
        key, values = request.key, self._values
        match request.what:
            case "set":
                self._put(key, request.value)
                self._answer(guest, None)
            case "get" | "await" if key not in values:
                guest.key = key
                guest.until_s = time.monotonic() + request.amount if request.amount else 0.0
                self._waiting.setdefault(key, []).append(guest)
            case "get" | "await":
                self._answer(guest, values[key])
            case "add":
                self._answer(guest, self._add(key, int(request.amount)))
            case "check":
                self._answer(guest, key in values)
            case "look":
                self._answer(guest, values.get(key))
            case "delete":
                self._answer(guest, values.pop(key, None) is not None)

    def _answer(self, guest: _Guest, answer: Any) -> None:
        body = _encode(answer)
        guest.leaves += _LENGTH.pack(len(body)) + body
        self._send(guest)

    def _send(self, guest: _Guest) -> None:
        """Send what a line takes now; the rest once it takes more."""
        with suppress(OSError):  # it has ended, as is noticed where it is read
            while guest.leaves:
                try:
                    sent = guest.line.send(guest.leaves)
                except BlockingIOError:
                    break
                del guest.leaves[:sent]
        if threading.current_thread() is self._thread:
            self._look_for(guest)
        elif guest.leaves:
            self._ring()

    def _look_for_output(self) -> None:
        with self._changed:
            for guest in self._guests:
                self._look_for(guest)

    def _look_for(self, guest: _Guest) -> None:
        """Be woken where a line can be written to, as long as something waits for that."""
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if guest.leaves else 0)
        with suppress(KeyError, ValueError):  # it was dropped
            if self._ears.get_key(guest.line).events != wanted:
                self._ears.modify(guest.line, wanted, guest)

    def _drop(self, guest: _Guest) -> None:
        with self._changed:
            self._guests.discard(guest)
            if guest.key in self._waiting:
                self._waiting[guest.key].remove(guest)
        self._ears.unregister(guest.line)
        guest.line.close()

    def _pause_s(self) -> float | None:
        """Return for how long nothing has to be given up; None is for ever."""
        ends_s = [guest.until_s for guest in self._guests if guest.key and guest.until_s]
        return max(0.0, min(ends_s) - time.monotonic()) if ends_s else None

    def _give_up_waits(self) -> None:
        now_s = time.monotonic()
        with self._changed:
            for guest in self._guests:
                if guest.key and guest.until_s and guest.until_s <= now_s:
                    self._waiting[guest.key].remove(guest)
                    guest.key = ""
                    self._answer(guest, None)

    def _ring(self) -> None:
        os.eventfd_write(self._bell, 1)


class LocalStoreClient:
    """The store of a launch as a worker has it.

    It has the methods of torch's stores, each a question and an answer. A worker has several lines:
    a thread that waits for an order holds its own, and the thread that reports must not wait for
    it.
    """

    def __init__(self, address: LocalStoreAddress) -> None:
        """Connect. Raises RuntimeError where the store is gone, LaunchError if it is another's."""
        self._asking = threading.Lock()
        self._came = bytearray()
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._line.settimeout(_OPENS_S)
        try:
            self._line.connect(address.name)
            if not is_ours(self._line):
                message = "the socket of this launch belongs to another user's process"
                raise LaunchError(message)
            self._line.sendall(address.key)
        except OSError as error:
            message = f"the process that started this worker is gone: {error}"
            raise RuntimeError(message) from error
        self._line.settimeout(None)

    @property
    def descriptor(self) -> int:
        """What ends with the local store, on a line that is asked nothing."""
        return self._line.fileno()

    def close(self) -> None:
        """Close the line."""
        self._line.close()

    def set(self, key: str, value: bytes | str, /) -> None:
        """Store a value."""
        self._ask(Request("set", key, value.encode() if isinstance(value, str) else value))

    def get(self, key: str, /) -> bytes:
        """Wait for a value, for as long as that takes, and return it."""
        return bytes(self._ask(Request("get", key)))

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter and return it."""
        return int(self._ask(Request("add", key, b"", amount)))

    def wait(self, keys: list[str], timeout: timedelta, /) -> None:
        """Wait until all keys are there. Raises RuntimeError once the time is over."""
        for key in keys:
            if self._ask(Request("await", key, b"", timeout.total_seconds())) is None:
                raise RuntimeError(_word_timeout([key]))

    def check(self, keys: list[str], /) -> bool:
        """Return whether all keys are there."""
        return all(self._ask(Request("check", key)) for key in keys)

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Return the value that is there, `expected` where there is none; change nothing."""
        assert expected == desired
        found = self._ask(Request("look", key))
        return expected.encode() if found is None else bytes(found)

    def delete_key(self, key: str, /) -> bool:
        """Take a value away."""
        return bool(self._ask(Request("delete", key)))

    def _ask(self, request: Request) -> Any:
        """Return the answer to a request. Raises RuntimeError where the local store is gone."""
        body = _encode(request)
        with self._asking:
            try:
                self._line.sendall(_LENGTH.pack(len(body)) + body)
                (size,) = _LENGTH.unpack(self._take(_LENGTH.size))
                return _ANSWERS.decode(self._take(size))
            except OSError as error:
                message = f"the process that started this worker is gone: {error}"
                raise RuntimeError(message) from error

    def _take(self, size: int) -> bytes:
        while len(self._came) < size:
            more = self._line.recv(_CHUNK)
            if not more:
                message = "it has ended"
                raise ConnectionError(message)
            self._came += more
        taken = bytes(self._came[:size])
        del self._came[:size]
        return taken


def _word_timeout(keys: list[str]) -> str:
    return f"wait timeout, keys: {', '.join(keys)}"
