"""What the launcher and the workers say to each other, and how it travels through the store."""

from __future__ import annotations

import secrets
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from itertools import count, repeat
from math import isnan, nan
from typing import Annotated, Any, Protocol, TypeAlias, overload

import msgspec
import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from torch_scenarios.errors import LaunchError
from torch_scenarios.execution.backends import Sharing
from torch_scenarios.execution.checkpoints import CheckpointFolder
from torch_scenarios.execution.heartbeat import SILENT_S, STOPPED_S
from torch_scenarios.execution.letters import Secret, decode, encode, let_travel
from torch_scenarios.limits import RAISING
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.trace import Event, RankTrace

# -------------------------------------------------------------------------------------------------
# What the near side and the workers say to each other: orders one way, messages the other.
#
# Everything here is a plain value that travels as a letter; nothing knows by which way.

#: where a rank stands: the index of its step and the values of the loop variables around it
Position: TypeAlias = tuple[int, tuple[int, ...]]

#: the order that ends a worker
STOP = -1
#: the key, under a scenario's name, that is there once all its ranks take their steps
BEGUN = "begun"


class Assignment(Struct, frozen=True, kw_only=True):
    """One scenario for the workers. `number` tells it from all others of one launch.

    `nonce` is a word that was never used before: mail of another run is not taken for this one's.
    `share_gpu`: ranks may share a GPU; `sharing` is how they do, where they must. With `proof` no
    step is taken: a fresh world is made and used once, after a hang was broken in the last one.
    With `looks` no world is made: each rank says whether it can use `folder`. With `keeps_world`
    the ranks run it in the world of the scenario before, which every one of them still has.
    """

    number: int
    plan: Plan
    backend: str
    plugins: tuple[str, ...] = ()
    share_gpu: bool = False
    sharing: Sharing | None = None
    proof: bool = False
    looks: bool = False
    keeps_world: bool = False
    #: where checkpoints lie, for every rank; None where the scenario has none
    folder: CheckpointFolder | None = None
    nonce: str = ""
    #: the capabilities that the case needs, as far as a backend here may lack one
    needs: tuple[str, ...] = ()

    def renew(self) -> Assignment:
        """Return the same order under its place."""
        return replace(self, nonce=secrets.token_hex(8))

    @property
    def place(self) -> str:
        """Where in the store all is that belongs to it."""
        return f"scenario/{self.number}/{self.nonce}"


class PredictedStop(Struct, frozen=True, kw_only=True):
    """Where one rank may be in the end, as predicted.

    `positions` are the calls that may hold it for good; `ending` how it ends where it takes its
    last step. `may_end`: it need not be held, because the semantics leave that open.

        rank 0   recv from 1    PredictedStop(ending="blocked", positions={(0, ())}, may_end=False)
        rank 1   (no step)      PredictedStop(ending="finished")

    Where every rank is at its stop, the deadlock is confirmed at once: no timeout has to pass
    (decision 14).
    """

    ending: str
    positions: frozenset[Position] = frozenset()
    may_end: bool = True


class Supervision(Struct, frozen=True, kw_only=True):
    """What to watch a running scenario for.

    `stops` says, for each rank, where it is predicted to end; empty where no deadlock is predicted,
    or where the backend's own timeout is wanted. `patience_s` is the longest time that one
    communication call may block before the backend itself must give up; `settle_s` how long a
    predicted deadlock must stand before it is confirmed. Where a backend is known to bring the
    program to a halt, `anywhere_s` is how long all ranks must stand wherever they do. `stopped_s`
    and `silent_s` are how long a rank's process may be stopped, and how long it may show no sign of
    life (see :mod:`torch_scenarios.execution.heartbeat`), before it counts as lost. `most_s` is how
    long the whole scenario may take before it is given up, by the option `bound`; None is for ever.
    """

    world_size: int
    patience_s: float
    settle_s: float = 0.03
    anywhere_s: float | None = None
    stopped_s: float = STOPPED_S
    silent_s: float = SILENT_S
    most_s: float | None = None
    bound: str = RAISING["max_seconds"]
    stops: Mapping[int, PredictedStop] = field(default_factory=dict)


class Job(Struct, frozen=True, kw_only=True):
    """One scenario for the host, on a launch of at least `size` workers.

    `watch` is for any backend, `own` for those that the scenario may come to and that are known to
    make something else of it. `fresh` asks for processes that no other scenario ran in.

    Workers stay for the next scenario, since a fork and a new world take longer than most scenarios
    do. A launch that is too small, or was broken, is replaced.
    """

    order: Assignment
    watch: Supervision
    own: Mapping[str, Supervision] = field(default_factory=dict)
    size: int
    fresh: bool = False


class WorkerReady(Struct, frozen=True, kw_only=True):
    """A worker is up. `host` and `pid` name its process.

    `versions` are those of what decides a verdict, by name. The first of each node under torchrun
    has read the files of the command line as well: `digest` stands for all of them.
    """

    rank: int
    pid: int
    host: str
    versions: Mapping[str, str]
    digest: str = ""


class WorldReady(Struct, frozen=True, kw_only=True):
    """A rank has made its world on a device, which may hang without a timeout.

    From then on it has to show that it is alive (:class:`RankAlive`).
    """

    rank: int


class RankStuck(Struct, frozen=True, kw_only=True):
    """A rank has not moved for a while, inside a communication call.

    It is a report of a place and no verdict: whether the rank will move is judged by the
    supervisor, which knows where all the others are.
    """

    rank: int
    position: Position


class RankAlive(Struct, frozen=True, kw_only=True):
    """A rank's watching thread comes to its turn, no matter what its main thread does.

    A rank that computes for a minute sends it; one whose process is stopped does not.
    """

    rank: int


class RankMoved(Struct, frozen=True, kw_only=True):
    """A rank that reported a position has moved on from it.

    Two ranks may both be still for a while and not wait for each other: a deadlock is confirmed
    only if none of them takes back what it reported.
    """

    rank: int


class RankReport(Struct, frozen=True, kw_only=True):
    """What a rank has to tell, once a scenario: everything that it saw.

    `world_s` is how long it took to make the world, in seconds, before the scenario began, and
    `began_s` when it did, by the monotonic clock that all processes of a `host` share; `spoilt`:
    its process can run no other scenario, because its device's context is lost.
    """

    rank: int
    trace: RankTrace
    backend: str
    notes: tuple[str, ...] = ()
    world_s: float = 0.0
    began_s: float = 0.0
    host: str = ""
    spoilt: bool = False


class RankFree(Struct, frozen=True, kw_only=True):
    """A rank is ready for the next scenario: its blocked call was broken, or its proof came out.

    After a hang the world is torn down from inside, and nothing shows that its process is sound. So
    a proof is run first: a fresh world is made, and used once.
    """

    rank: int


class WorldFailed(Struct, frozen=True, kw_only=True):
    """A rank could not make its world; `unsupported` where the backend refuses the scenario.

    The case is then UNSUPPORTED, or an ERROR of the environment; never a failure of the program.
    """

    rank: int
    reason: str
    unsupported: bool = False


#: exit code of a worker that was told to end (SIGTERM): a shell has the same for one that it ended
TERMINATED = 128 + 15


class RankLeaving(Struct, frozen=True, kw_only=True):
    """A rank was asked by its agent to end, because another process of its launch died.

    torchrun ends all ranks when one of them dies. Without this message the exit of a rank that was
    ended would look like a second death.
    """

    rank: int


Message: TypeAlias = (
    WorkerReady
    | RankAlive
    | WorldReady
    | RankStuck
    | RankMoved
    | RankReport
    | RankFree
    | WorldFailed
    | RankLeaving
)


# -------------------------------------------------------------------------------------------------
# Messages through a store: any number of writers, one reader, in order of arrival.
#
# A store is a dictionary that can add and wait: torch's, or this package's own on one machine
# (:mod:`torch_scenarios.execution.local_store`). A writer takes the next slot by `add` and stores
# its message there; the reader waits for one slot after the other. Arrays above a size travel
# beside the message, in pieces, so that neither the store's limit on a value nor memory is
# exceeded. torch's store asks no one who he is: there each value is sealed.

#: what no value is
ABSENT = "absent"
#: bytes; torch's store refuses values of 8 MiB
PIECE = 4 << 20
#: bytes; a smaller message is one value of the store
SMALL = 1 << 20
#: seconds after which a slot that was taken but not filled counts as a hole
HOLE_S = 5.0


class Store(Protocol):
    """What is used of `torch.distributed.Store`.

    torch's own stores, a sealed one and this package's
    :class:`torch_scenarios.execution.local_store.LocalStore` have it, so that the protocol does not
    know on how many machines it runs.
    """

    def set(self, key: str, value: bytes, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def add(self, key: str, amount: int, /) -> int: ...
    def wait(self, keys: list[str], timeout: timedelta, /) -> None: ...
    def check(self, keys: list[str], /) -> bool: ...
    def delete_key(self, key: str, /) -> bool: ...
    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes: ...


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


def await_key(store: Store, key: str) -> bytes:
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


def holds(store: Store, key: str) -> bool:
    """Return whether this launch has put something under `key`."""
    return look(store, key) is not None


class SealedStore:
    """A store that others may write to: what this launch puts there is sealed, each in its place.

    Counters are torch's and have no seal: who changes them can hold a launch up.

        set("scenario/1/order", b"...")      HMAC of place and bytes, then the bytes
        get("scenario/1/order")              ForgedError where the seal is not of this place
    """

    def __init__(self, store: Any, place: str, secret: Secret) -> None:
        """Use `store`, a store of torch's; `place` tells this launch from others in it."""
        self._store = store
        self._place = place
        self._secret = secret

    def set(self, key: str, value: bytes, /) -> None:
        """Store a value under a seal."""
        self._store.set(key, self._secret.seal(f"{self._place}/{key}", value))

    def get(self, key: str, /) -> bytes:
        """Wait for a value and return it. Raises ForgedError where this launch did not put it."""
        return self._open(key, self._store.get(key))

    def multi_get(self, keys: list[str], /) -> list[bytes]:
        """Wait for several values and return them; as :meth:`get`."""
        return [self._open(*each) for each in zip(keys, self._store.multi_get(keys), strict=True)]

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Return the value that is there, `expected` where there is none; change nothing."""
        assert expected == desired
        found = bytes(self._store.compare_set(key, expected, desired))
        return found if found == expected.encode() else self._open(key, found)

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter and return it."""
        return int(self._store.add(key, amount))

    def wait(self, keys: list[str], timeout: timedelta, /) -> None:
        """Wait until all keys are there. Raises RuntimeError."""
        self._store.wait(keys, timeout)

    def check(self, keys: list[str], /) -> bool:
        """Return whether all keys are there, no matter who put them there."""
        return bool(self._store.check(keys))

    def delete_key(self, key: str, /) -> bool:
        """Take a value away."""
        return bool(self._store.delete_key(key))

    def _open(self, key: str, sealed: bytes) -> bytes:
        return self._secret.open(f"{self._place}/{key}", bytes(sealed))


#: the sizes, in bytes, of a letter that travels in pieces and of the arrays next to it
_SIZES = msgspec.msgpack.Decoder(list[Annotated[int, Meta(ge=0, le=1 << 40)]])
#: what such a head begins with: no letter does
_PIECES = b"!"


def put(store: Store, key: str, value: object) -> None:
    """Store `value` under `key`, in pieces where it is large."""
    body, large = encode(value)
    if not large and len(body) <= SMALL:
        store.set(key, body)
        return
    sizes = []
    for number, buffer in enumerate((memoryview(body), *large)):
        sizes.append(buffer.nbytes)
        for start in range(0, buffer.nbytes, PIECE):
            piece = buffer[start : start + PIECE]
            store.set(f"{key}/{number}/{start}", bytes(piece))
    store.set(key, _PIECES + msgspec.msgpack.encode(sizes))


def fetch(store: Store, key: str, *, keep: bool = False) -> list[bytes | bytearray]:
    """Take a stored value away, still a letter: its body, then the arrays that lay beside it.

    With `keep` it stays where it is, for others to read.
    """
    head = look(store, key)
    if head is None:
        head = store.get(key)
    if not keep:
        store.delete_key(key)
    return _read_value(store, key, head, keep=keep)


def _read_value(
    store: Store, key: str, head: bytes, *, keep: bool = False
) -> list[bytes | bytearray]:
    """Return a value that begins with `head`: itself, or the pieces that lie beside it."""
    if head[:1] != _PIECES:
        return [head]
    parts: list[bytes | bytearray] = []
    for number, size in enumerate(_SIZES.decode(head[1:])):
        part = bytearray(size)
        for start in range(0, size, PIECE):
            name = f"{key}/{number}/{start}"
            piece = store.get(name)
            part[start : start + len(piece)] = piece
            if not keep:
                store.delete_key(name)
        parts.append(part)
    return parts


def open_parts(parts: list[bytes | bytearray], kind: Any = object) -> Any:
    """Return the value that :func:`fetch` took. Raises LaunchError where it is not of a kind."""
    try:
        found = decode(parts[0], parts[1:])
    except ValueError as error:
        message = (
            f"a message between the processes of this launch cannot be read: {error}. Every node "
            "needs the same version of torch-scenarios"
        )
        raise LaunchError(message) from error
    if not isinstance(found, kind):
        message = f"a {type(found).__name__} came where another message of this launch was due"
        raise LaunchError(message)
    return found


class Outbox:
    """The writers' end of a mailbox.

        add("m/slots", 1) -> 4        this writer has the fourth slot, and no other has
        set("m/4", letter)

    A counter that the store adds to is all that keeps any number of writers apart.
    """

    def __init__(self, store: Store, name: str) -> None:
        """Write to the mailbox `name` in `store`."""
        self._store = store
        self._name = name

    def post(self, message: object) -> None:
        """Put a message into the next slot."""
        slot = self._store.add(f"{self._name}/slots", 1)
        put(self._store, f"{self._name}/{slot}", message)


class Inbox:
    """The reader's end of a mailbox.

    It waits for slot 1, then 2, and so on, so that messages come in the order of their slots. A
    writer that is killed between `add` and `set` leaves a hole, which is stepped over after a
    while.
    """

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
        """Take the next message, still a letter; None if none arrives in time.

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
        return _read_value(self._store, key, head)

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


# -------------------------------------------------------------------------------------------------
# How the events of one rank travel: in columns, because each by itself takes longer than its step.
#
# A rank writes them, the near side reads them back as events. Knows nothing of torch.

#: bytes; larger arrays travel by themselves
SMALL_BYTES = 64 << 10
#: the number of no block: a value that is no small array
ALONE = 0


class Columns(Struct):
    """The fields of all events, each field for all events together.

    `kinds` are the different triples of index, label and names written, and `kind` says which of
    them an event is. `written` are the values written, event by event: small arrays of one dtype
    and shape stand in one block, and `block` says in which. `other` are further fields of
    those few events that have any. A time that there is not is NaN.
    """

    kinds: dict[tuple[int, str, tuple[str, ...]], int] = field(default_factory=dict)
    kind: array[int] = field(default_factory=lambda: array("L"))
    iterations: list[tuple[int, ...]] = field(default_factory=list)
    start_s: array[float] = field(default_factory=lambda: array("d"))
    end_s: array[float] = field(default_factory=lambda: array("d"))
    complete_s: array[float] = field(default_factory=lambda: array("d"))
    other: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    block: array[int] = field(default_factory=lambda: array("L"))
    blocks: list[Any] = field(default_factory=lambda: [[]])

    def add(
        self,
        kind: tuple[int, str, tuple[str, ...]],
        iteration: tuple[int, ...],
        times_s: tuple[float, float | None, float | None],
        other: Mapping[str, Any] | None,
    ) -> None:
        """Add an event; `times_s` are when it started, ended and was complete."""
        start_s, end_s, complete_s = times_s
        if other:
            self.other[len(self.kind)] = other
        self.kind.append(self.kinds.setdefault(kind, len(self.kinds)))
        self.iterations.append(iteration)
        self.start_s.append(start_s)
        self.end_s.append(nan if end_s is None else end_s)
        self.complete_s.append(nan if complete_s is None else complete_s)

    def write(self, values: Sequence[Any]) -> None:
        """Add what all events have written, in order."""
        alone: list[Any] = []
        numbers: dict[tuple[Any, tuple[int, ...]], int] = {}
        rows: list[list[Any]] = [alone]
        for value in values:
            number = ALONE
            if isinstance(value, np.ndarray) and value.nbytes <= SMALL_BYTES:
                number = numbers.setdefault((value.dtype, value.shape), len(rows))
                if number == len(rows):
                    rows.append([])
            rows[number].append(value)
            self.block.append(number)
        self.blocks = [alone, *(np.stack(each) for each in rows[1:])]

    def events(self) -> tuple[Event, ...]:
        """Return the events."""
        kinds, values = tuple(self.kinds), self._values()
        found = []
        for place, kind in enumerate(self.kind):
            index, label, written = kinds[kind]
            end_s, complete_s = self.end_s[place], self.complete_s[place]
            event = Event(
                index=index,
                label=label,
                iteration=self.iterations[place],
                start_s=self.start_s[place],
                end_s=None if isnan(end_s) else end_s,
                complete_s=None if isnan(complete_s) else complete_s,
                writes={name: next(values) for name in written},
                **self.other.get(place, {}),
            )
            found.append(event)
        return tuple(found)

    def _values(self) -> Iterator[Any]:
        """Yield what was written, event by event: an array is a row of its block."""
        alone, *blocks = self.blocks
        rows = [iter(alone), *(map(_row, repeat(block), count()) for block in blocks)]
        return (next(rows[number]) for number in self.block)


def _row(block: Any, row: int) -> Any:
    """Return a row as an array, also where it has no dimension."""
    return block[row, ...]


class RankAccount(Sequence[Event]):
    """The events of one rank: columns on the way, a sequence of events for who reads them.

    Who only passes them on, as the fork server does, pays for no event: to make and to send them
    one by one takes longer than the step itself.
    """

    def __init__(self, columns: Columns) -> None:
        """Hold the columns."""
        self._columns = columns

    @cached_property
    def _events(self) -> tuple[Event, ...]:
        return self._columns.events()

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Event]: ...
    def __getitem__(self, place: int | slice) -> Event | Sequence[Event]:
        """Return the event at a place, or those in a range."""
        return self._events[place]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._columns.kind)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the columns."""
        return RankAccount, (self._columns,)

    @property
    def columns(self) -> Columns:
        """The columns."""
        return self._columns


let_travel(
    RankAccount, "account", lambda account: (account.columns,), lambda its: RankAccount(*its)
)
