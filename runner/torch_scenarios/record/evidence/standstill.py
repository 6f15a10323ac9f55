"""What the ranks of a fake world do, as all of them see it; and how one sees that none moves."""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

#: seconds in which no rank moves, one of them outside of any call, after which the run is ended
STANDSTILL_S = 20.0
#: seconds between two looks at the processes of ranks
LOOK_S = 0.5
#: part of the time in which a process that only waits, or polls, may want a processor
MOST_WANTED = 0.2

#: bytes a second that a process may read and write while it waits: lines that say so, small files
MOST_TRANSFERRED = 1 << 16

#: states of ranks in the shared board: a byte a rank, then four bytes that count what was put
NEVER, RUNNING, WAITING, OVER = 0, 1, 2, 3


class RankStates:
    """What each rank is doing, in memory that all of them share."""

    def __init__(self, world_size: int) -> None:
        """Make it, before the ranks are forked."""
        self._size = world_size
        self._memory = mmap.mmap(-1, world_size * 5)
        self._sleeps = mmap.mmap(-1, world_size * 8)

    def state(self, rank: int) -> int:
        """Return what a rank is doing."""
        return self._memory[rank]

    def become(self, rank: int, state: int) -> None:
        """Say what a rank is doing."""
        self._memory[rank] = state

    def put(self, rank: int) -> None:
        """Count what a rank put."""
        at = self._size + rank * 4
        count = int.from_bytes(self._memory[at : at + 4], "little") + 1
        self._memory[at : at + 4] = count.to_bytes(4, "little")

    def sleep_until(self, rank: int, until: float) -> None:
        """Say until when a rank sleeps, by the monotonic clock."""
        self._sleeps[rank * 8 : rank * 8 + 8] = struct.pack("d", until)

    def sleeps_until(self, rank: int) -> float:
        """Return until when a rank sleeps, or slept last."""
        (until,) = struct.unpack("d", self._sleeps[rank * 8 : rank * 8 + 8])
        return float(until)

    def whole(self) -> bytes:
        """Return what each rank is doing and how much it put, to compare."""
        return self._memory[:]

    def are_over(self, ranks: list[int]) -> bool:
        """Whether the processes of all of some ranks have ended."""
        return all(self._memory[rank] == OVER for rank in ranks)

    def still(self, ranks: list[int]) -> bool:
        """Whether none of some ranks runs, or has yet to."""
        return all(self._memory[rank] in {WAITING, OVER} for rank in ranks)


class Standstill:
    """Sees from outside that a rank waits where its mailbox does not notice: outside of any call.

    A rank that waits in a lock, a queue, a socket, or a loop that sleeps, has a process that wants
    no processor, and so have the processes that it started; they read and write next to
    nothing, whereas the bytes of a download come to a file. Such a rank frees its place for one
    that has yet to start. Where no rank moves for :data:`STANDSTILL_S`, it waits for what never
    comes::

        rank 0   all_gather_object ---- waits in the mailbox -------------
        rank 1   queue.get() ---------- wants no processor ---------------| the run is ended
                                        |<-------- STANDSTILL_S -------->|

    A sleep that began before counts to its end: it is over by itself. What cannot be known of a
    process (no `/proc` here) is taken for a movement.
    """

    def __init__(self, board: RankStates, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin to look."""
        self._board, self._clock = board, clock
        self._looked = self._since = clock()
        self._sleeps: float | None = None
        self._whole = b""
        self._wanted: dict[int, float] = {}
        self._transferred: dict[int, int] = {}
        self._resting: set[int] = set()

    def look(self, running: Mapping[int, int]) -> None:
        """Look at the processes of ranks, process id -> rank, where it is time for that."""
        now = self._clock()
        elapsed = now - self._looked
        if elapsed < LOOK_S:
            return
        self._looked = now
        whole = self._board.whole()
        moved = whole != self._whole
        self._whole = whole
        self._resting.clear()
        for pid, rank in running.items():
            if self._board.state(rank) != RUNNING:
                continue
            wanted, before = read_demand_s(pid), self._wanted.get(pid)
            if wanted is not None:
                self._wanted[pid] = wanted
            if (
                self._transfers(pid, elapsed)
                or wanted is None
                or before is None
                or abs(wanted - before) > MOST_WANTED * elapsed  # less: a part of it has ended
            ):
                moved = True
            else:
                self._resting.add(rank)
        if moved:
            self._since, self._sleeps = now, None
        elif self._sleeps is None:
            self._sleeps = max(map(self._board.sleeps_until, self._resting), default=0.0)

    def _transfers(self, pid: int, elapsed: float) -> bool:
        """Whether a process has read and written more than one that waits, since the last look."""
        count = read_transfer(pid)
        before = self._transferred.get(pid, count)
        self._transferred[pid] = count
        return count - before > MOST_TRANSFERRED * elapsed

    def rests(self, rank: int) -> bool:
        """Whether a rank waits outside of any call, or seems to."""
        return rank in self._resting

    def ranks(self) -> list[int]:
        """Return the ranks that wait outside of any call for what never comes."""
        until = max(self._since, self._sleeps or 0.0) + STANDSTILL_S
        return sorted(self._resting) if self._clock() > until else []


def read_demand_s(pid: int) -> float | None:
    """Return the seconds that a process, and those it started, ran or waited for a processor.

    None where that cannot be known, and where one of them waits for a disk.
    """
    total = 0
    try:
        for each in list_family(pid):
            for task in Path(f"/proc/{each}/task").iterdir():
                ran, waited, _ = (task / "schedstat").read_text(encoding="ascii").split()
                total += int(ran) + int(waited)
                if (task / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "D":
                    return None
    except (OSError, ValueError, IndexError):
        return None
    return total / 1e9


def read_transfer(pid: int) -> int:
    """Return the bytes that a process, and those it started, read and wrote; 0 if not known."""
    total = 0
    try:
        for each in list_family(pid):
            fields = Path(f"/proc/{each}/io").read_text(encoding="ascii").split()
            total += int(fields[fields.index("rchar:") + 1])
            total += int(fields[fields.index("wchar:") + 1])
    except (OSError, ValueError, IndexError):
        return 0
    return total


def list_family(pid: int) -> Iterator[int]:
    """Yield a process and all that come from it."""
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text(encoding="ascii").split():
            yield from list_family(int(child))
