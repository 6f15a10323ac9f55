"""Heartbeats: how the processes of one machine show that they run, and who of them does not.

Each process has its count in memory that they share. A thread that does nothing else
raises it once a second: it needs a turn of the processor and the lock of Python's interpreter, no
connection and no main thread. So a process that is stopped (SIGSTOP) or hangs with that lock
held is told from one that only waits. The listener counts seconds in which it runs itself:

    beat of rank 1   . . . . .                      stopped
    listener         . . . . . . .    (swapped)   . . .
    seconds quiet    0 0 0 0 0 1 2                2 3 4

Knows nothing of scenarios, stores or torch; other hosts cannot see this memory.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from msgspec import Struct

#: seconds between two beats
BEAT_S = 1.0
#: seconds that a process may stay stopped: the kernel says so, and no slow machine looks like it
STOPPED_S = 10.0
#: seconds without a beat of a process that is not stopped: a call that holds the interpreter's
#: lock, a machine that swaps and a busy one look the same for a while
SILENT_S = 30.0
#: bytes of a count
COUNT = 8


class Beats:
    """The counts of some processes, by their places: local ranks, or 0 for the only one.

    >>> beats = Beats.create(2)
    >>> beats.beat(1)
    >>> len(beats), beats[0], beats[1]
    (2, 0, 1)
    >>> beats.close()

    A count in shared memory needs no connection and no system call, so that a process which hangs
    in the network still shows that it lives.
    """

    def __init__(self, descriptor: int) -> None:
        """Use the memory behind a descriptor, which is kept."""
        self.descriptor = descriptor
        size = os.fstat(descriptor).st_size
        self._counts = memoryview(mmap.mmap(descriptor, size)).cast("Q")

    @classmethod
    def create(cls, places: int) -> Self:
        """Make memory for `places` processes; forks share it, and no file is left behind.

        Another process opens `/proc/PID/fd/DESCRIPTOR` of this one, or is handed the descriptor.
        """
        descriptor = os.memfd_create("beats")
        os.ftruncate(descriptor, COUNT * max(1, places))
        return cls(descriptor)

    def __len__(self) -> int:
        """Return for how many processes there is a place."""
        return len(self._counts)

    def __getitem__(self, place: int) -> int:
        """Return how often a process has beaten; 0 is one that is not up yet."""
        return int(self._counts[place])

    def beat(self, place: int) -> None:
        """Beat once."""
        self._counts[place] += 1

    def keep(self, place: int) -> None:
        """Beat from now on, in a thread of this process."""
        self.beat(place)
        threading.Thread(target=self._keep, args=(place,), name="heart", daemon=True).start()

    def _keep(self, place: int) -> None:
        while True:
            time.sleep(BEAT_S)
            self.beat(place)

    def close(self) -> None:
        """Give the descriptor back; the memory lives on while a process beats in it."""
        os.close(self.descriptor)


class LastCount(Struct):
    """What a listener knows of one process: its last count, and the seconds since it changed.

    The seconds are those in which the listener itself ran. A machine that sleeps for a minute stops
    both, and no process is lost by it.
    """

    count: int
    seconds: float = 0.0


class BeatListener:
    """Hears the processes of one machine; never waits.

    A process that is quiet for long is stopped, or holds Python's lock in a call of C. The first is
    known after `stopped_s`, from the kernel; the second is only likely, after the longer
    `silent_s`.
    """

    def __init__(
        self,
        beats: Beats,
        pids: Mapping[int, int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Hear the processes `pids`, by their places in `beats`."""
        self._beats = beats
        self._pids = pids
        self._clock = clock
        self._looked_s = clock()
        self._quiet = {place: LastCount(beats[place]) for place in pids}

    def find_lost(self, *, stopped_s: float, silent_s: float) -> dict[int, str]:
        """Return the places of the processes that do not run, each with what is wrong, in words.

        A process counts as lost after `stopped_s` seconds where the kernel calls it stopped, and
        after `silent_s` otherwise. One that never beat is not up yet, and can only be stopped.
        """
        now_s = self._clock()
        # a listener that did not run itself has heard nothing, and knows nothing
        passed_s = min(now_s - self._looked_s, BEAT_S)
        if passed_s < BEAT_S / 4:
            return {}
        self._looked_s = now_s
        found = {}
        for place, quiet in self._quiet.items():
            count = self._beats[place]
            quiet.seconds = quiet.seconds + passed_s if count == quiet.count else 0.0
            quiet.count = count
            if quiet.seconds < min(stopped_s, silent_s):
                continue
            pid = self._pids[place]
            stopped = is_stopped(pid)
            if stopped and quiet.seconds >= stopped_s:
                found[place] = f"process {pid} is stopped (SIGSTOP or the like)"
            elif not stopped and count and quiet.seconds >= silent_s:
                found[place] = (
                    f"process {pid} shows no sign of life for {quiet.seconds:.0f} s: it is not "
                    "stopped, but none of its Python code runs"
                )
        return found


def is_stopped(pid: int) -> bool:
    """Return whether the kernel calls a process stopped; False where there is no /proc."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state == "T"
