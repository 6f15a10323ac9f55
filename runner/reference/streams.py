"""The order in which a rank's work begins, where calls are enqueued and not made at once.

    host    isend to 1   irecv from 1   wait
    stream  [isend ......................] [irecv]      begins once the send is done

A device does the calls of one group one after the other, whichever of them a program waits for.
What is enqueued behind a call that never ends never begins: nobody meets it. A batch is one call:
what it sends and receives begins at one stroke.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runner.call import Call
    from runner.reference.posts import Work
    from runner.reference.reading import Reading


class Streams:
    """The works of all ranks that are enqueued and not done, by the stream they are on."""

    def __init__(self, reading: Reading) -> None:
        """Begin with nothing enqueued."""
        self._reading = reading
        self._free = reading.order == "free"
        self._queues: dict[tuple[int, str], deque[Work]] = {}
        self._begin: dict[int, Callable[[], None]] = {}
        self._over: deque[Work] = deque()

    def enqueue(self, work: Work, begin: Callable[[], None]) -> None:
        """Let `begin` post what a work is made of: now, or once what is before it is done."""
        stream = self._stream(work)
        if stream is None:
            work.begun = True
            begin()
            return
        queue = self._queues.setdefault(stream, deque())
        queue.append(work)
        self._begin[id(work)] = begin
        if queue[0] is work:
            self._start(work)

    def stands(self, work: Work) -> bool:
        """Whether the rank's host never returns from the call: it enqueues nothing."""
        standing = self._reading.standing
        return bool(standing) and standing.get(work.rank) == work.number

    def _stream(self, work: Work) -> tuple[int, str] | None:
        if self._free:
            return None
        group = work.call.entry.group
        order = self._reading.on(group).order
        return None if order == "free" else (work.rank, group.key if order == "group" else "")

    def _start(self, work: Work) -> None:
        work.begun = True
        self._begin.pop(id(work))()

    def note(self, work: Work) -> None:
        """Note that a part of a work is done: what is behind it may be next."""
        if self._queues and work.done:
            self._over.append(work)

    def advance(self) -> bool:
        """Begin what has become the first of its stream; False if nothing has."""
        if not self._over:
            return False
        while self._over:
            stream = self._stream(self._over.popleft())
            queue = self._queues.get(stream) if stream is not None else None
            while queue and queue[0].done:
                over = queue.popleft()
                if queue and not queue[0].begun:
                    queue[0].start_s = max(queue[0].start_s, over.done_s)
                    self._start(queue[0])
        return True

    def first(self, work: Work) -> Work:
        """Return what a work really waits for: the first of its stream, itself if it has begun."""
        stream = self._stream(work)
        queue = self._queues.get(stream) if stream is not None and not work.begun else None
        return queue[0] if queue and work in queue else work

    def behind(self) -> Iterator[tuple[Work, Work]]:
        """Yield works that never began, each with the one that is first on its stream."""
        for queue in self._queues.values():
            yield from ((work, queue[0]) for work in list(queue)[1:])

    def enqueued(self, rank: int) -> list[Call]:
        """Return the calls of a rank that are enqueued and have not begun, in order."""
        if not self._queues:
            return []
        works = [
            work
            for (owner, _), queue in self._queues.items()
            if owner == rank
            for work in queue
            if not work.begun
        ]
        return [work.call for work in sorted(works, key=lambda work: work.number)]
