"""Messages through a torch store: any number of writers, one reader, in order of arrival.

A store is a dictionary that can add and wait. A writer takes the next slot by `add` and stores its
message there; the reader waits for one slot after the other. Arrays above a size travel beside
the message, in pieces, so that neither the store's limit on a value nor memory is exceeded.
"""

from __future__ import annotations

import pickle
import time
from datetime import timedelta
from typing import Any, Protocol

#: what no value is
ABSENT = "absent"
#: bytes; torch's store refuses values of 8 MiB
PIECE = 4 << 20
#: bytes; smaller arrays are pickled in place
INLINE = 64 << 10
#: bytes; a smaller message is one value of the store
SMALL = 1 << 20
#: seconds after which a slot that was taken but not filled counts as a hole
HOLE_S = 5.0


class Store(Protocol):
    """What is used of `torch.distributed.Store`."""

    def set(self, key: str, value: bytes, /) -> None: ...  # noqa: D102 -- torch's own
    def get(self, key: str, /) -> bytes: ...  # noqa: D102 -- torch's own
    def add(self, key: str, amount: int, /) -> int: ...  # noqa: D102 -- torch's own
    def wait(self, keys: list[str], timeout: timedelta, /) -> None: ...  # noqa: D102 -- torch's own
    def check(self, keys: list[str], /) -> bool: ...  # noqa: D102 -- torch's own
    def delete_key(self, key: str, /) -> bool: ...  # noqa: D102 -- torch's own
    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes: ...  # noqa: D102 -- torch's own


def arrives(store: Store, key: str, timeout_s: float) -> bool:
    """Wait until `key` is there; False once `timeout_s` is over.

    A store whose server is gone raises RuntimeError (`DistNetworkError`).
    """
    try:
        store.wait([key], timedelta(seconds=timeout_s))
    except RuntimeError as error:
        if "timeout" in str(error).lower():
            return False
        raise
    return True


def awaited(store: Store, key: str) -> bytes:
    """Wait for as long as it takes until `key` is there; returns its value.

    A store whose server is gone raises RuntimeError (`DistNetworkError`).
    """
    while True:
        try:
            return store.get(key)
        except RuntimeError as error:
            if "timeout" not in str(error).lower():
                raise


def look(store: Store, key: str) -> bytes | None:
    """Return the value of `key`, None where there is none, in one exchange with the store.

    torch's `get` takes two: it waits first. A comparison with what no value is changes nothing, and
    answers with the value that is there.
    """
    found = store.compare_set(key, ABSENT, ABSENT)
    return None if found == ABSENT.encode() else found


def put(store: Store, key: str, value: object) -> None:
    """Store `value` under `key`, in pieces where it is large."""
    large: list[memoryview] = []

    def beside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < INLINE:
            return True
        large.append(raw)
        return False

    body = pickle.dumps(value, protocol=5, buffer_callback=beside)
    if not large and len(body) <= SMALL:
        store.set(key, body)
        return
    sizes = []
    for number, buffer in enumerate((memoryview(body), *large)):
        sizes.append(buffer.nbytes)
        for start in range(0, buffer.nbytes, PIECE):
            piece = buffer[start : start + PIECE]
            store.set(f"{key}/{number}/{start}", bytes(piece))
    store.set(key, b"!" + pickle.dumps(sizes))


def fetch(store: Store, key: str, *, keep: bool = False) -> list[bytes | bytearray]:
    """Take a stored value away, still pickled: its body, then the arrays that lay beside it.

    With `keep` it stays where it is, for others to read.
    """
    head = look(store, key)
    if head is None:
        head = store.get(key)
    if not keep:
        store.delete_key(key)
    return _whole(store, key, head, keep=keep)


def _whole(store: Store, key: str, head: bytes, *, keep: bool = False) -> list[bytes | bytearray]:
    """Return a value that begins with `head`: itself, or the pieces that lie beside it."""
    if head[:1] != b"!":
        return [head]
    parts: list[bytes | bytearray] = []
    for number, size in enumerate(pickle.loads(head[1:])):  # noqa: S301 -- from our own worker
        part = bytearray(size)
        for start in range(0, size, PIECE):
            name = f"{key}/{number}/{start}"
            piece = store.get(name)
            part[start : start + len(piece)] = piece
            if not keep:
                store.delete_key(name)
        parts.append(part)
    return parts


def opened(parts: list[bytes | bytearray]) -> Any:  # noqa: ANN401 -- whatever was put
    """Unpickle what :func:`fetch` took."""
    return pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301 -- from our own worker


class Outbox:
    """The writers' end of a mailbox."""

    def __init__(self, store: Store, name: str) -> None:
        """Write to the mailbox `name` in `store`."""
        self._store = store
        self._name = name

    def post(self, message: object) -> None:
        """Put a message into the next slot."""
        slot = self._store.add(f"{self._name}/slots", 1)
        put(self._store, f"{self._name}/{slot}", message)


class Inbox:
    """The reader's end of a mailbox."""

    def __init__(self, store: Store, name: str) -> None:
        """Read the mailbox `name` in `store` from its first slot on."""
        self._store = store
        self._name = name
        self._next = 1
        self._hole_since_s: float | None = None
        #: slots that were stepped over: a writer may have been slow, and not killed
        self._holes: list[int] = []
        #: keys of messages that were read, and are there still
        self._read: list[str] = []

    def take(self, timeout_s: float) -> list[bytes | bytearray] | None:
        """Take the next message, still pickled; None if none arrives in time.

        A writer that was killed between taking a slot and filling it leaves a hole. One that is
        only slow has taken its slot as well: a hole is skipped only after a while, and looked at
        again for as long as nothing else comes.
        """
        key = f"{self._name}/{self._next}"
        head = look(self._store, key)
        if head is None and timeout_s > 0 and arrives(self._store, key, timeout_s):
            head = look(self._store, key)
        if head is None:
            late = next((slot for slot in self._holes if self._is_full(slot)), None)
            if late is not None:
                self._holes.remove(late)
                return fetch(self._store, f"{self._name}/{late}")
            if not self._is_hole():
                return None
            key = f"{self._name}/{self._next}"
            head = self._store.get(key)
        self._next += 1
        self._hole_since_s = None
        self._read.append(key)
        return _whole(self._store, key, head)

    def clear(self) -> None:
        """Take away what was read: no reader need wait for that."""
        for key in self._read:
            self._store.delete_key(key)
        self._read.clear()

    def expects(self) -> bool:
        """Return whether a message is on its way that was begun: a slot is taken, and not read.

        A writer that died may have filled its slot in its last moment; what it sent is there once
        the store has answered this question. One that left a hole is expected no more after a
        while.
        """
        taken = self._store.add(f"{self._name}/slots", 0)
        if taken < self._next:
            return False
        now_s = time.monotonic()
        if self._hole_since_s is None:
            self._hole_since_s = now_s
        return now_s - self._hole_since_s < HOLE_S

    def _is_full(self, slot: int) -> bool:
        return self._store.check([f"{self._name}/{slot}"])

    def _is_hole(self) -> bool:
        """Step over a slot that stayed empty although the one after it was filled long ago."""
        if not self._is_full(self._next + 1):
            return False
        now_s = time.monotonic()
        if self._hole_since_s is None:
            self._hole_since_s = now_s
        if now_s - self._hole_since_s < HOLE_S:
            return False
        self._holes.append(self._next)
        self._next += 1
        return True
