"""When a step is done on a device, and waiting for what cannot be waited for safely."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

# Waiting for what cannot be waited for safely: look, sleep a little, look again, until a deadline.
#
# A device that hangs never lets go of a thread that synchronises with it. So nothing here does: an
# event is asked whether it has happened, and the asking thread may leave at any time.

#: seconds of the first sleep between two looks, and of the longest
FIRST_S, LONGEST_S = 0.00002, 0.002

#: how a wait ends: it happened, the deadline passed, or `leave` said so
End: TypeAlias = Literal["happened", "late", "left"]


class Clock(Struct, frozen=True, kw_only=True):
    """Time, as far as it is needed; a test brings its own.

    >>> now = iter([0.0, 0.5, 2.0])
    >>> clock = Clock(now_s=lambda: next(now), sleep=lambda _: None)
    >>> wait(lambda: False, deadline_s=1.0, clock=clock)
    'late'
    """

    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def wait(
    happened: Callable[[], bool],
    *,
    deadline_s: float,
    leave: Callable[[], bool] = lambda: False,
    clock: Clock | None = None,
) -> End:
    """Wait until something has happened; `deadline_s` is a moment of the clock, not a duration.

    What has happened counts before the deadline and before `leave`. The sleeps grow from
    microseconds, so that what is nearly done is not waited for long.
    """
    clock = clock or Clock()
    pause_s = FIRST_S
    while not happened():
        if leave():
            return "left"
        if clock.now_s() >= deadline_s:
            return "late"
        clock.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_S)
    return "happened"


def seldom(
    ask: Callable[[], bool], every_s: float, clock: Clock | None = None
) -> Callable[[], bool]:
    """Return a question that is really asked once in `every_s` seconds, and answered no between."""
    clock = clock or Clock()
    asked_s = clock.now_s()

    def question() -> bool:
        nonlocal asked_s
        if clock.now_s() - asked_s < every_s:
            return False
        asked_s = clock.now_s()
        return ask()

    return question


# When a step is done on the device: with its call on a CPU, with an event on a GPU.
#
# On a GPU a call only enqueues, and nothing may wait for it that the scenario does not let wait.
# So an event is recorded behind each step, and nothing but a question is ever put to it: by the
# watching thread while the host runs on, by the main thread after the last step.

#: seconds that a device gets for what a rank holds before step 1; what is late shows at a step
READY_S = 10.0


class Completion(Protocol):
    """How steps complete on one device.

        CPU   the call returns ........ done            `mark` is None: there is nothing to wait for
        GPU   the call returns ... done                 `mark` is an event behind it on the stream

    A step's time in a trace is when it was done, and a device is asked and never waited for: a call
    that hangs on it would hold the thread that watches (decision 18).
    """

    def begin(self) -> None:
        """Start the device's clock."""

    def mark(self) -> Any:
        """Return an event behind everything enqueued so far; None where all of it is done."""

    def seconds(self, event: Any) -> float:
        """Return when an event that has happened did, in seconds of the device's clock."""

    @property
    def enqueues(self) -> bool:
        """Whether a call that has returned may not have been done."""


class HostCompletion:
    """A call that has returned is done: the CPU.

    >>> HostCompletion().mark() is None
    True
    """

    enqueues = False

    def begin(self) -> None:
        """There is no other clock."""

    def mark(self) -> None:
        """Everything is done."""

    def seconds(self, event: Any) -> float:
        """Never asked: there are no events."""
        return 0.0


#: what cudaEventQuery says of an event that has happened, and of one that has not
HAPPENED, NOT_READY = 0, 600


class DeviceEvent:
    """A CUDA event that is asked without Python's lock.

    torch's own `query` keeps that lock (torch/csrc/cuda/Event.cpp). Where the driver lets nobody
    in, because another thread waits for a device that hangs, no thread of the process would run
    any more, and its silence would be all that is known of the rank.
    """

    __slots__ = ("_runtime", "event")

    def __init__(self, event: Any, runtime: ctypes.CDLL | None) -> None:
        """Ask torch's event by the CUDA runtime; without one, as torch does."""
        self.event = event
        self._runtime = runtime

    def query(self) -> bool:
        """Return whether it has happened. Raises RuntimeError where the device is lost."""
        if self._runtime is not None:
            said = self._runtime.cudaEventQuery(ctypes.c_void_p(self.event.cuda_event))
            if said == HAPPENED:
                return True
            self._runtime.cudaGetLastError()  # else the next call of torch would find it
            if said == NOT_READY:
                return False
        return bool(self.event.query())  # torch has the words for what went wrong


def cuda_runtime(torch: ModuleType) -> ctypes.CDLL | None:
    """Return the CUDA runtime that torch has loaded; None where there is none that is shared."""
    version = getattr(getattr(torch, "version", None), "cuda", None)
    if version is None:
        return None
    name = f"libcudart.so.{version.partition('.')[0]}"
    try:
        runtime = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        _ = runtime.cudaEventQuery, runtime.cudaGetLastError
    except (OSError, AttributeError):
        return None
    return runtime


class DeviceCompletion:
    """A call that has returned is enqueued: a GPU.

    To make an event and to ask for the current stream take longer than to record an event. So the
    stream is asked for once a scenario, because no step leaves it, and the events of a scenario
    serve the next one.
    """

    enqueues = True

    def __init__(self, torch: ModuleType) -> None:
        """Record events on the current stream of the current device."""
        self._cuda: Any = torch.cuda
        self._runtime = cuda_runtime(torch)
        self._stream: Any = None
        self._origin: Any = None
        self._events: list[DeviceEvent] = []
        #: how many of the events this scenario has used
        self._used = 0

    def begin(self) -> None:
        """Record where the clock starts; no reader wants the events of the scenario before.

        What the rank holds before step 1 is on the device then: a rank that takes no step has no
        other event behind it, and values come to the host on another stream.
        """
        self._used = 0
        self._stream = self._cuda.current_stream()
        self._origin = self.mark()
        wait(self._origin.query, deadline_s=time.monotonic() + READY_S)

    def mark(self) -> Any:
        """Record an event on the stream that the step was enqueued on."""
        events, used = self._events, self._used
        if used == len(events):
            events.append(DeviceEvent(self._cuda.Event(enable_timing=True), self._runtime))
        self._used = used + 1
        found = events[used]
        found.event.record(self._stream)
        return found

    def seconds(self, event: Any) -> float:
        """Return the time between the clock's start and an event, on the device."""
        return float(self._origin.event.elapsed_time(event.event)) / 1000


@cache
def completion_on(torch: ModuleType, device: Any) -> Completion:
    """Return how steps complete on a device, the same object for every scenario there."""
    return DeviceCompletion(torch) if device.type == "cuda" else HostCompletion()
