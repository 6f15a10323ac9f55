"""Cases side by side: read and analysed by a process on each core, run on several launches.

Either gives what was made of a case to one caller, in one thread.
"""

from __future__ import annotations

import gc
import math
import os
import pickle
import queue
import resource
import selectors
import signal
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Generic, NoReturn, Protocol, Self, TypeVar

# -------------------------------------------------------------------------------------------------
# Analysis on every core: what is ordered is independent, and starts no process.
#
#     this process    orders files, then cases; gives what came of each, in order
#     a worker        reads file 0, 2, 3, 6 | analyses the cases of 0, 2, 3, 6
#     another one     reads file 1, 4, 5    | analyses the cases of 1, 4, 5, then one of 6
#
# Workers are forked, so that they know all that this process knows by then. What a worker has read
# stays with it: an order for the same file goes to it, unless it has more to do than another one.
# Only what this process asks for travels back. Workers end with the crew, also when it is
# interrupted.

T = TypeVar("T")
R = TypeVar("R")

#: fewer orders than this are done sooner than a process is forked
WORTHWHILE = 16

#: orders for each process that is forked, at least: a machine has more cores than there is to do
EACH = 8

#: orders that a worker has before it, at most, so that it need not wait for the next one
MOST_AHEAD = 16

#: parts of the orders of a worker that are given out one after the other, so that all end together
_PORTIONS = 4

#: seconds between two looks at workers that give nothing
LOOK_S = 1.0

#: seconds after which results are taken together: a look at each would take a core from a worker
TOGETHER_S = 0.002

_LENGTH = struct.Struct("=Q")
_CHUNK = 1 << 16


class ProcessPool:
    """Does what is ordered; a context manager, which ends the workers.

    What it does must depend on nothing but the order and what was known when the first orders came;
    orders and results must pickle. What it does bounds itself, but a call that does not return to
    Python does not: the system ends a worker that computes for more than `most_s` seconds of
    processor time at one order. At `ends_s` of the monotonic clock all of them end.

        orders    case 0   case 1   case 2   case 3
        core 0    [case 0][case 2 ......]
        core 1    [case 1][case 3]             results are given in the order of the orders

    A worker that dies takes one case with it: that one has a result that says so.
    """

    def __init__(
        self, *known: Callable[[Any], Any], most_s: float, ends_s: float | None = None
    ) -> None:
        """Begin without a worker; `known` is all that may be ordered."""
        self._known = known
        self._most_s = most_s
        self._ends_s = math.inf if ends_s is None else ends_s
        self._cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        self._workers = selectors.DefaultSelector()
        self._round: _Round[Any, Any] | None = None
        #: what orders are near to -> the worker that had one of them last
        self._homes: dict[Hashable, _Worker] = {}

    def __enter__(self) -> Self:
        """Take orders from here on."""
        return self

    def __exit__(self, *_: object) -> None:
        """End every worker that has not ended."""
        for worker in self._all():
            os.kill(worker.pid, signal.SIGKILL)
        for worker in self._all():
            self._bury(worker)
        self._workers.close()

    def results(
        self,
        do: Callable[[T], R],
        orders: Sequence[T],
        *,
        lost: Callable[[T, bool], R],
        near: Callable[[T], Hashable],
    ) -> Iterator[R]:
        """Give what `do` makes of each order, in order; the work begins now.

        `lost` gives the result of an order whose worker ended without one; it is given whether the
        worker ended because it took too long. Orders that are `near` to the same go to the same
        worker where that is no loss. No process is forked once a result is asked for: the caller
        may start threads. The results of one call are taken before the next one.
        """
        if len(orders) >= WORTHWHILE and not self._alone:
            for _ in range(len(self._all()), min(self._cores, len(orders) // EACH)):
                self._fork()
        if not self._all():
            return map(do, orders)
        self._round = found = _Round(self._known.index(do), orders, lost, near, len(self._all()))
        for at, order in enumerate(orders):
            found.left.setdefault(self._homes.get(near(order)), deque()).append(at)
        for worker in self._all():
            self._supply(worker)
        return (self._result(found, at) for at in range(len(orders)))

    @property
    def _alone(self) -> bool:
        """Whether no process may be forked: there is no core for it, or this one has threads."""
        return self._cores == 1 or threading.active_count() > 1

    def _all(self) -> list[_Worker]:
        return [key.data for key in self._workers.get_map().values()]

    def _result(self, found: _Round[T, R], at: int) -> R:
        while at not in found.done and self._all():
            time.sleep(TOGETHER_S)
            self._hear(LOOK_S)
            if time.monotonic() > self._ends_s:
                self._end_all()
        if at not in found.done:
            found.give_up(at, late=False)
        result, error = found.done.pop(at)
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # None only beside an error

    # ------------------------------------------------------------------ the workers

    def _fork(self) -> None:
        reads, writes = os.pipe()
        taken, given = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._work(taken, writes, reads, given)
        os.close(writes)
        os.close(taken)
        worker = _Worker(pid, reads, given)
        self._workers.register(reads, selectors.EVENT_READ, worker)

    def _work(self, orders: int, out: int, *foreign: int) -> NoReturn:
        """Do what is ordered, in this forked process: no way leads out of here."""
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGXCPU, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                signal.signal(signal.SIGHUP, signal.SIG_DFL)
            # a worker whose parent has gone ends at its next order, or its next result
            others = (fd for each in self._all() for fd in (each.pipe, each.given))
            for other in (*foreign, *others):
                os.close(other)
            gc.enable()
            before, inbox = -1, _Inbox()
            while received := os.read(orders, _CHUNK):
                for which, at, order in inbox.messages(received):
                    if which != before:
                        gc.freeze()  # what it knows by now stays
                        before = which
                    _allow(self._most_s)
                    _send(out, (at, *self._do(which, order)))
        finally:
            os._exit(0)

    def _do(self, which: int, order: Any) -> tuple[Any, Exception | None]:
        try:
            return self._known[which](order), None
        except Exception as error:  # noqa: BLE001 -- it is raised where the result is asked for
            return None, error

    def _supply(self, worker: _Worker) -> None:
        """Give a worker what it does next, once it has little before it."""
        found = self._round
        assert found is not None
        if len(worker.before) > found.ahead // 2:
            return
        orders = b""
        while len(worker.before) < found.ahead and (at := found.next(worker)) is not None:
            worker.before.append(at)
            self._homes[found.near(found.orders[at])] = worker
            orders += _pack((found.which, at, found.orders[at]))
        with suppress(BrokenPipeError):  # it has gone, which is heard at its other pipe
            _write(worker.given, orders)

    def _hear(self, timeout_s: float | None) -> None:
        """Take what workers have sent; wait for something where there is no timeout."""
        found = self._round
        assert found is not None
        for key, _ in self._workers.select(timeout_s):
            worker: _Worker = key.data
            received = os.read(key.fd, _CHUNK)
            if not received:
                self._lose(worker)
                continue
            for at, result, error in worker.inbox.messages(received):
                worker.before.remove(at)
                found.done[at] = result, error
            self._supply(worker)

    def _end_all(self) -> None:
        """End the workers that have something before them: there is no time left for it."""
        for worker in self._all():
            if worker.before:
                os.kill(worker.pid, signal.SIGXCPU)
                self._lose(worker)

    def _lose(self, worker: _Worker) -> None:
        """Take back what a worker that has gone had before it, but for what it was at."""
        found = self._round
        assert found is not None
        late = self._bury(worker) == -signal.SIGXCPU
        self._homes = {near: home for near, home in self._homes.items() if home is not worker}
        if worker.before:
            at = worker.before.popleft()
            found.give_up(at, late=late)
        found.left.setdefault(None, deque()).extendleft(reversed(worker.before))
        for other in self._all():
            self._supply(other)

    def _bury(self, worker: _Worker) -> int:
        """Wait for the end of a worker; return how it ended, as `waitstatus_to_exitcode` says."""
        self._workers.unregister(worker.pipe)
        os.close(worker.pipe)
        os.close(worker.given)
        return os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])


def _allow(most_s: float) -> None:
    """Let the system end this process once it has computed for some seconds more.

    It does so by SIGXCPU, which needs no Python to be heard, and leaves no core behind.
    """
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    until = math.ceil(time.process_time() + most_s)
    if most != resource.RLIM_INFINITY:
        until = min(until, most)
    resource.setrlimit(resource.RLIMIT_CPU, (until, most))


class _Round(Generic[T, R]):
    """Orders of one kind, and what came of them so far."""

    def __init__(
        self,
        which: int,
        orders: Sequence[T],
        lost: Callable[[T, bool], R],
        near: Callable[[T], Hashable],
        workers: int,
    ) -> None:
        self.which = which
        self.orders = orders
        self.lost = lost
        self.near = near
        #: orders that a worker has before it, at most
        self.ahead = max(1, min(MOST_AHEAD, len(orders) // (workers * _PORTIONS)))
        #: what is to be given out, by the worker to which it is near
        self.left: dict[_Worker | None, deque[int]] = {}
        self.done: dict[int, tuple[R | None, Exception | None]] = {}

    def next(self, worker: _Worker) -> int | None:
        """Return the next order for a worker: its own, else any, else the last of another."""
        for home in (worker, None):
            if self.left.get(home):
                return self.left[home].popleft()
        longest = max(self.left.values(), key=len, default=None)
        return longest.pop() if longest else None

    def give_up(self, at: int, *, late: bool) -> None:
        """Note that nothing came of an order but that its worker ended."""
        self.done[at] = self.lost(self.orders[at], late), None


class _Inbox:
    """The bytes of a pipe, taken apart into messages."""

    def __init__(self) -> None:
        self._received = bytearray()

    def messages(self, received: bytes) -> Iterator[tuple[Any, ...]]:
        """Give each message that is complete with these bytes."""
        self._received += received
        while len(self._received) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            yield pickle.loads(self._received[_LENGTH.size : end])  # noqa: S301 -- our own process
            del self._received[:end]


class _Worker:
    """A process, the pipes to and from it, and what it has before it."""

    def __init__(self, pid: int, pipe: int, given: int) -> None:
        self.pid = pid
        self.pipe = pipe
        self.given = given
        self.inbox = _Inbox()
        self.before: deque[int] = deque()


def _pack(message: tuple[Any, ...]) -> bytes:
    packed = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(packed)) + packed


def _send(pipe: int, message: tuple[Any, ...]) -> None:
    _write(pipe, _pack(message))


def _write(pipe: int, message: bytes) -> None:
    left = memoryview(message)
    while left:
        left = left[os.write(pipe, left) :]


# -------------------------------------------------------------------------------------------------
# Runs on several launches: each has a thread here that waits for it.
#
#     this thread    begins a on launch 0, b on launch 1, waits; begins c on the launch that is free
#     launch 0       a a a a a a a a a
#     launch 1       b b b | c c c c c
#
# What the threads do is to wait: the work is done by the processes of the launches.

#: seconds between two looks whether a launch that was abandoned has let go of its thread
ABANDON_LOOK_S = 0.05


class Abandonable(Protocol):
    """What a case runs on, and what another thread can take from under it.

    A launch that waits for a device cannot be interrupted from Python. So Ctrl-C ends its
    processes, and the call on them ends with an error by itself.
    """

    def abandon(self) -> None:
        """End what runs now: it ends with an error soon."""


E = TypeVar("E", bound=Abandonable)


class ParallelRunner(Generic[E, T, R]):
    """Does a case on each of several executors at a time; a context manager.

    Leaving it abandons what still runs, and returns once no thread of it is left.

        --launches 2       launch 0   [case 0 ....][case 2 ....]
                           launch 1   [case 1 ..][case 3 ..]

    Threads and no processes: each only waits for its launch, whose ranks are processes anyway.
    """

    def __init__(self, executors: Sequence[E], do: Callable[[E, T], R]) -> None:
        """Begin with every executor free."""
        self._executors = executors
        self._do = do
        #: executors without a case, the one that was used last at the end: its workers are warm
        self._free = list(reversed(range(len(executors))))
        self._orders: list[queue.SimpleQueue[tuple[int, T] | None]] = [
            queue.SimpleQueue() for _ in executors
        ]
        self._answers: queue.SimpleQueue[tuple[int, int, R | BaseException]] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, args=(number,), name=f"launch {number}")
            for number in range(len(executors))
        ]

    def __enter__(self) -> Self:
        """Start the threads."""
        for thread in self._threads:
            thread.daemon = True
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End them. A launch that is only being started is abandoned once it can be."""
        for order in self._orders:
            order.put(None)
        for number, thread in enumerate(self._threads):
            while thread.is_alive():
                if number not in self._free:
                    self._executors[number].abandon()
                thread.join(ABANDON_LOOK_S)

    @property
    def is_free(self) -> bool:
        """Whether an executor has no case."""
        return bool(self._free)

    def begin(self, at: int, case: T) -> None:
        """Begin the case that the caller knows as number `at`, on a free executor."""
        self._orders[self._free.pop()].put((at, case))

    def next(self) -> tuple[int, R]:
        """Wait for a case that is done; raises what `do` raised."""
        number, at, answer = self._answers.get()
        self._free.append(number)
        if isinstance(answer, BaseException):
            raise answer
        return at, answer

    def _serve(self, number: int) -> None:
        while (order := self._orders[number].get()) is not None:
            at, case = order
            answer: R | BaseException
            try:
                answer = self._do(self._executors[number], case)
            except BaseException as error:  # noqa: BLE001 -- it is raised where the answer is taken
                answer = error
            self._answers.put((number, at, answer))
            del case, order, answer  # no tensor outlives its case
