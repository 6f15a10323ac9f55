"""Who meets whom in messages: by their two ends and their tag, in order.

Pure bookkeeping: nothing here knows what is sent, or when a rank may go on.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from runner.reference.posts import Posted

if TYPE_CHECKING:
    from runner.call import Call
    from runner.operations.entries import Message
    from runner.plan import Group
    from runner.reference.reading import Reading

Address = tuple[str, int, int]


class Mailbox:
    """Messages that were posted and have not met, in order of posting.

    They lie by address: group, receiver and tag; within one, sends by their source. Where a reading
    does not look at tags, all have the same.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._sends: dict[Address, dict[int, deque[Posted]]] = {}
        self._receives: dict[Address, dict[int | None, deque[Posted]]] = {}
        self.abandoned: list[Posted] = []
        #: whether a rank ever received from anyone
        self.from_anyone = False
        #: how many messages were posted
        self.count = 0
        self._counts: dict[tuple[str, int, int | None, int, bool], int] = {}

    @property
    def sends(self) -> list[Posted]:
        """The sends that no receive has met, in order."""
        boxes = self._sends.values()
        return sorted((post for box in boxes for queue in box.values() for post in queue), key=_age)

    @property
    def receives(self) -> list[Posted]:
        """The receives that no send has met, in order."""
        boxes = self._receives.values()
        return sorted((post for box in boxes for queue in box.values() for post in queue), key=_age)

    def post(self, call: Call, group: Group, message: Message, time_s: float) -> Posted:
        """Add a message; :meth:`partner_of` then looks for its other side."""
        self.count += 1
        self.from_anyone |= message.peer is None
        rank = call.entry.rank
        ends = (group.key, rank, message.peer, message.tag, message.sends)
        nth = self._counts[ends] = self._counts.get(ends, -1) + 1
        posted = Posted(
            rank=rank,
            call=call,
            time_s=time_s,
            group=group,
            message=message,
            payload=message.payload,
            order=self.count,
            nth=nth,
        )
        self._queue(posted).append(posted)
        return posted

    def address(self, posted: Posted) -> Address:
        """Return where a message is to be found by its receiver: group, receiver, tag."""
        return self._address(posted)

    def _address(self, posted: Posted) -> Address:
        message, group = posted.message, posted.group
        receiver = (message.peer or 0) if message.sends else posted.rank
        return group.key, receiver, message.tag if self._reading.on(group).tags else 0

    def _queue(self, posted: Posted) -> deque[Posted]:
        address, message = self._address(posted), posted.message
        if message.sends:
            return self._sends.setdefault(address, {}).setdefault(posted.rank, deque())
        return self._receives.setdefault(address, {}).setdefault(message.peer, deque())

    def under_way(self, send: Posted) -> int:
        """Return how many messages were sent before this one on its way, and not received."""
        return sum(post.order < send.order for post in self._queue(send))

    def partner_of(self, posted: Posted) -> Posted | None:
        """Return the opposite side that must meet this one, or None.

        A message that an earlier receive from anyone could take waits until nothing else moves:
        which message it takes is a choice (ISP's delayed matching, Vakkalanka et al. 2008).
        """
        message = posted.message
        address = self._address(posted)
        if message.sends:
            receives = self._receives.get(address, {})
            named = _first(receives.get(posted.rank))
            anyone = _first(receives.get(None))
            if named is None or (anyone is not None and anyone.order < named.order):
                return None
            earlier = _first(self._sends[address].get(posted.rank))
            return named if earlier is posted else None
        if message.peer is None:
            return None
        anyone = _first(self._receives[address].get(None))
        if anyone is not None and anyone.order < posted.order:
            return None
        if _first(self._receives[address].get(message.peer)) is not posted:
            return None
        return _first(self._sends.get(address, {}).get(message.peer))

    def candidates(self, receive: Posted) -> list[Posted]:
        """Return the sends that a receive from anyone may take now: the first of each source."""
        sources = self._sends.get(self._address(receive), {})
        return [queue[0] for _, queue in sorted(sources.items()) if queue]

    def open(self) -> list[tuple[Posted, list[Posted]]]:
        """Return the receives from anyone that may take a message now, with what they may take.

        In order of their ranks; of those with one address the first.
        """
        first: dict[Address, Posted] = {}
        for address, receives in self._receives.items():
            receive = _first(receives.get(None))
            if receive is not None:
                first[address] = receive
        ordered = sorted(first.values(), key=lambda each: (each.rank, each.order))
        found = [(receive, self.candidates(receive)) for receive in ordered]
        return [(receive, sends) for receive, sends in found if sends]

    def named(self, send: Posted) -> Posted | None:
        """Return the first receive that names the sender of a message, or None."""
        return _first(self._receives.get(self._address(send), {}).get(send.rank))

    def meet(self, send: Posted, receive: Posted) -> None:
        """Take both out of the box."""
        self._queue(send).remove(send)
        self._queue(receive).remove(receive)
        send.partner, receive.partner = receive, send

    def withdraw(self, posted: Posted) -> None:
        """Take out a message that its rank gave up."""
        queue = self._queue(posted)
        if posted in queue:
            queue.remove(posted)
            self.abandoned.append(posted)


def _first(queue: deque[Posted] | None) -> Posted | None:
    return queue[0] if queue else None


def _age(posted: Posted) -> int:
    return posted.order
