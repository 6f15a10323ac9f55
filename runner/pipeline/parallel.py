"""Cases side by side: analysed by a process on each core, run on several launches.

Either gives what `do` makes of a case to one caller, in one thread; `do` must depend on nothing but
its case.
"""

from __future__ import annotations

import gc
import os
import pickle
import queue
import selectors
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NoReturn, Protocol, Self, TypeVar

# -------------------------------------------------------------------------------------------------
# Analysis on every core: cases are independent, and the analysis starts no process of its own.
#
#     this process    reads a b c d e f g h, then gives the results in order
#     ahead                   a b | c d e         one worker after another, for what is read so far
#     at the end                        f g h     a worker on each core, for all the rest
#
# Workers are forked, so that they have their cases already, and only results travel back. They end
# with the analysis, also when it is interrupted.

T = TypeVar("T")
R = TypeVar("R")

#: fewer cases than this are done sooner than a process is forked
WORTHWHILE = 16

#: more cases than this are not given to one worker before all are known
MOST_AHEAD = 64

#: seconds between two looks at workers that give nothing
LOOK_S = 1.0

#: how many entries a queue may have: a pipe holds as much as is written before anyone reads
_QUEUE = 8192

_INDEX = struct.Struct("=I")
_LENGTH = struct.Struct("=Q")
_CHUNK = 1 << 16


class Crew(Generic[T, R]):
    """Gives what `do` makes of each case; a context manager, which ends the workers.

    `do` must depend on nothing but its case, and its results must pickle. `lost` gives the result
    of a case whose worker ended without one; the result says whether the worker was ended because
    it gave no result for `patience_s` seconds: `do` bounds itself, but a call that does not return
    to Python does not.
    """

    def __init__(
        self, do: Callable[[T], R], lost: Callable[[T, bool], R], patience_s: float
    ) -> None:
        """Begin without a worker."""
        self._do = do
        self._lost = lost
        self._patience_s = patience_s
        self._late = False
        self._cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        self._cases: list[T] = []
        self._begun = 0
        self._found: dict[int, tuple[R | None, Exception | None]] = {}
        self._workers = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        """Take cases from here on."""
        return self

    def __exit__(self, *_: object) -> None:
        """End every worker that has not ended."""
        for key in list(self._workers.get_map().values()):
            os.kill(key.data.pid, signal.SIGKILL)
            self._bury(key.data)
        self._workers.close()

    def ahead(self, cases: Iterable[T]) -> None:
        """Take cases of which the results will be asked for, while there are more to come.

        A core stays with this process, which finds out what comes.
        """
        self._cases += cases
        if self._alone or len(self._cases) - self._begun < WORTHWHILE:
            return
        self._hear(0)
        if len(self._workers.get_map()) < self._cores - 1:
            first = self._begun
            self._begun = min(len(self._cases), first + MOST_AHEAD)
            self._fork(range(first, self._begun))

    def results(self, cases: Sequence[T]) -> Iterator[R]:
        """Give the result of each case, in order; these are all. What is left to do begins now.

        No process is forked once the first result is asked for: the caller may start threads.
        """
        begun = {id(case) for case in self._cases[: self._begun]}
        left = [case for case in cases if id(case) not in begun]
        self._cases[self._begun :] = left
        places = {id(case): at for at, case in enumerate(self._cases)}
        if not self._alone and len(left) >= WORTHWHILE:
            self._share()
        return (self._result(places[id(case)]) for case in cases)

    @property
    def _alone(self) -> bool:
        """Whether no process may be forked: there is no core for it, or this one has threads."""
        return self._cores == 1 or threading.active_count() > 1

    def _share(self) -> None:
        """Fork a worker for each core; each takes the next case from a queue that is full."""
        rest = range(self._begun, len(self._cases))
        self._begun = len(self._cases)
        stride = -(-len(rest) // _QUEUE)
        reads, writes = os.pipe()
        os.write(writes, b"".join(_INDEX.pack(at) for at in rest[::stride]))
        os.close(writes)
        for _ in range(self._cores):
            self._fork(_queued(reads, stride, len(self._cases)))
        os.close(reads)

    def _result(self, at: int) -> R:
        if at >= self._begun:
            return self._do(self._cases[at])
        while at not in self._found and self._workers.get_map():
            self._hear(LOOK_S)
            self._end_late()
        if at not in self._found:
            return self._lost(self._cases[at], self._late)
        result, error = self._found.pop(at)
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # None only beside an error

    # ------------------------------------------------------------------ the workers

    def _fork(self, places: Iterable[int]) -> None:
        reads, writes = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._work(places, writes, reads)
        os.close(writes)
        self._workers.register(reads, selectors.EVENT_READ, _Worker(pid, reads))

    def _work(self, places: Iterable[int], out: int, *foreign: int) -> NoReturn:
        """Do what is at `places`, in a process of its own: no way leads out of here."""
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                signal.signal(signal.SIGHUP, signal.SIG_DFL)
            for other in (*foreign, *(key.fd for key in self._workers.get_map().values())):
                os.close(other)  # a worker whose reader has gone ends at its next result
            gc.freeze()
            gc.enable()
            for at in places:
                message = pickle.dumps((at, *self._done(at)), pickle.HIGHEST_PROTOCOL)
                _write(out, _LENGTH.pack(len(message)) + message)
        finally:
            os._exit(0)

    def _done(self, at: int) -> tuple[R | None, Exception | None]:
        try:
            return self._do(self._cases[at]), None
        except Exception as error:  # noqa: BLE001 -- it is raised where the result is asked for
            return None, error

    def _hear(self, timeout_s: float | None) -> None:
        """Take what workers have sent; wait for something where there is no timeout."""
        for key, _ in self._workers.select(timeout_s):
            received = os.read(key.fd, _CHUNK)
            if received:
                key.data.heard_s = time.monotonic()
                for at, result, error in key.data.messages(received):
                    self._found[at] = result, error
            else:
                self._bury(key.data)

    def _end_late(self) -> None:
        """End the workers that have given nothing for too long."""
        now_s = time.monotonic()
        for key in list(self._workers.get_map().values()):
            if now_s - key.data.heard_s > self._patience_s:
                self._late = True
                os.kill(key.data.pid, signal.SIGKILL)
                self._bury(key.data)

    def _bury(self, worker: _Worker) -> None:
        self._workers.unregister(worker.pipe)
        os.close(worker.pipe)
        os.waitpid(worker.pid, 0)


class _Worker:
    """A process, the pipe on which it sends, and what is known of its next message."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid = pid
        self.pipe = pipe
        self.heard_s = time.monotonic()
        self._received = bytearray()

    def messages(self, received: bytes) -> Iterator[tuple[int, object, Exception | None]]:
        """Give each message that is complete with these bytes."""
        self._received += received
        while len(self._received) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            yield pickle.loads(self._received[_LENGTH.size : end])  # noqa: S301 -- our own process
            del self._received[:end]


def _queued(reads: int, stride: int, end: int) -> Iterator[int]:
    """Give what a worker takes from the queue: each entry stands for `stride` places in a row."""
    while entry := os.read(reads, _INDEX.size):
        first = _INDEX.unpack(entry)[0]
        yield from range(first, min(first + stride, end))


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
    """What a case runs on, and what another thread can take from under it."""

    def abandon(self) -> None:
        """End what runs now: it ends with an error soon."""


E = TypeVar("E", bound=Abandonable)


class SideBySide(Generic[E, T, R]):
    """Does a case on each of several executors at a time; a context manager.

    Leaving it abandons what still runs, and returns once no thread of it is left.
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
