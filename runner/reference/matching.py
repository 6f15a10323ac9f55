"""Who meets whom: collectives by position on a group, messages by their two ends and their tag.

Pure bookkeeping: nothing here knows what an operation computes, or when a rank may go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.operations.base import Entry, Message, Undefined
    from runner.plan import Group
    from runner.program import Call


@dataclass(slots=True, kw_only=True, eq=False)
class Post:
    """One thing that a call waits for. `done_s` is None until it may pass, on virtual time."""

    rank: int
    call: Call
    time_s: float
    work: Work | None = None
    done_s: float | None = None
    withdrawn: bool = False
    #: an undefined value among what the call read
    tainted: Undefined | None = None
    #: (argument, what it holds afterwards, slack), stored when the work is complete for its rank;
    #: the argument is None for the buffer of a message
    outcome: list[tuple[str | None, Any, Any]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True, eq=False)
class Joining(Post):
    """A rank that entered a collective.

    `entry` is the call's own; a copy once the rank has gone on without the others.
    """

    meeting: Meeting
    entry: Entry


@dataclass(slots=True, kw_only=True, eq=False)
class Posted(Post):
    """A message that a rank sends or receives; `partner` is the other side once they met."""

    group: Group
    message: Message
    payload: Any
    order: int
    partner: Posted | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Creating(Post):
    """A rank that called `new_group`; `ordinal` numbers its calls.

    `local` tells that only the members need call (`use_local_synchronization`).
    """

    ordinal: int
    group: Group
    local: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """What one call started: complete when every post is done."""

    rank: int
    call: Call
    start_s: float
    handle: str | None = None
    posts: list[Any] = field(default_factory=list)
    waited: bool = False

    @property
    def done(self) -> bool:
        """Whether every part may pass."""
        return all(post.done_s is not None for post in self.posts)

    @property
    def done_s(self) -> float:
        """When the last part was done; call only if it is."""
        return max((post.done_s for post in self.posts), default=self.start_s)


@dataclass(slots=True, kw_only=True, eq=False)
class Meeting:
    """The n-th collective of a group: who entered it, with which operation.

    In a correct program all members enter the same operation. `settled` tells that the result was
    computed; `spoiled` names the mismatch that leaves it undefined.
    """

    group: Group
    position: int
    joined: dict[int, Joining] = field(default_factory=dict)  # by group rank
    settled: bool = False
    spoiled: str | None = None

    def of(self, operation_name: str) -> dict[int, Joining]:
        """Return those who entered that operation, by group rank."""
        return {
            group_rank: joining
            for group_rank, joining in self.joined.items()
            if joining.call.operation is not None
            and joining.call.operation.name == operation_name
            and not joining.withdrawn
        }

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of the operations that were entered here, in order of group ranks."""
        names = [
            self.joined[at].call.operation.name  # type: ignore[union-attr]
            for at in sorted(self.joined)
        ]
        return tuple(dict.fromkeys(names))

    @property
    def complete(self) -> bool:
        """Whether every member entered the same operation."""
        return len(self.joined) == self.group.size and len(self.kinds) == 1


class Meetings:
    """All collectives of a run, by group and position."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, int], Meeting] = {}
        self._next: dict[tuple[str, int], int] = {}

    def join(self, call: Call, time_s: float) -> Joining:
        """Enter the rank's next collective on its group."""
        entry: Entry = call.entry
        group = entry.group
        position = self.position(group.key, entry.rank)
        self._next[group.key, entry.rank] = position + 1
        meeting = self._at.get((group.key, position))
        if meeting is None:
            meeting = self._at[group.key, position] = Meeting(group=group, position=position)
        joining = Joining(rank=entry.rank, call=call, time_s=time_s, meeting=meeting, entry=entry)
        meeting.joined[entry.group_rank] = joining
        return joining

    def position(self, group_key: str, rank: int) -> int:
        """Return how many collectives the rank has entered on the group."""
        return self._next.get((group_key, rank), 0)

    def all(self) -> list[Meeting]:
        """Return every meeting, in the order in which the first member came."""
        return list(self._at.values())


class Mailbox:
    """Messages that were posted and have not met, in order of posting."""

    def __init__(self) -> None:
        self.sends: list[Posted] = []
        self.receives: list[Posted] = []
        self.abandoned: list[Posted] = []
        self._count = 0

    def post(self, call: Call, group: Group, message: Message, time_s: float) -> Posted:
        """Add a message; :meth:`partner_of` then looks for its other side."""
        self._count += 1
        posted = Posted(
            rank=call.entry.rank,
            call=call,
            time_s=time_s,
            group=group,
            message=message,
            payload=message.payload,
            order=self._count,
        )
        (self.sends if message.sends else self.receives).append(posted)
        return posted

    def partner_of(self, posted: Posted) -> Posted | None:
        """Return the first opposite side that must meet this one, or None.

        A message that an earlier receive from anyone could take waits until nothing else moves:
        which message it takes is a choice (ISP's delayed matching, Vakkalanka et al. 2008).
        """
        if posted.message.sends:
            for receive in self.receives:
                if fits(posted, receive):
                    return None if receive.message.peer is None else self._first(posted, receive)
            return None
        if posted.message.peer is None:
            return None
        for send in self.sends:
            if fits(send, posted):
                return None if self._claimed(send, posted) else send
        return None

    def _first(self, send: Posted, receive: Posted) -> Posted | None:
        earlier = next(other for other in self.sends if fits(other, receive))
        return receive if earlier is send else None

    def _claimed(self, send: Posted, receive: Posted) -> bool:
        return any(
            other.message.peer is None and other.order < receive.order and fits(send, other)
            for other in self.receives
        )

    def candidates(self, receive: Posted) -> list[Posted]:
        """Return the sends that a receive from anyone may take now: the first of each source."""
        found: dict[int, Posted] = {}
        for send in self.sends:
            if fits(send, receive):
                found.setdefault(send.rank, send)
        return [found[rank] for rank in sorted(found)]

    def meet(self, send: Posted, receive: Posted) -> None:
        """Take both out of the box."""
        self.sends.remove(send)
        self.receives.remove(receive)
        send.partner, receive.partner = receive, send

    def withdraw(self, posted: Posted) -> None:
        """Take out a message that its rank gave up."""
        box = self.sends if posted.message.sends else self.receives
        if posted in box:
            box.remove(posted)
            self.abandoned.append(posted)


def fits(send: Posted, receive: Posted) -> bool:
    """Return whether a send and a receive name each other: group, ranks and tag."""
    return (
        send.group.key == receive.group.key
        and send.message.peer == receive.rank
        and receive.message.peer in {None, send.rank}
        and send.message.tag == receive.message.tag
    )


class Creations:
    """The groups that ranks create while the program runs, by each rank's own count."""

    def __init__(self) -> None:
        self._at: dict[int, dict[int, Creating]] = {}
        self._next: dict[int, int] = {}

    def ordinal(self, rank: int) -> int:
        """Return how many groups the rank has created by steps."""
        return self._next.get(rank, 0)

    def create(self, call: Call, time_s: float, group: Group) -> Creating:
        """Enter the rank's next creation."""
        rank = call.entry.rank
        ordinal = self.ordinal(rank)
        self._next[rank] = ordinal + 1
        creating = Creating(
            rank=rank,
            call=call,
            time_s=time_s,
            ordinal=ordinal,
            group=group,
            local=bool(call.entry.arguments.get("use_local_synchronization")),
        )
        self._at.setdefault(ordinal, {})[rank] = creating
        return creating

    def at(self, ordinal: int) -> dict[int, Creating]:
        """Return who made its `ordinal`-th creation, by rank."""
        return self._at.get(ordinal, {})

    def all(self) -> list[dict[int, Creating]]:
        """Return the creations in order."""
        return [self._at[ordinal] for ordinal in sorted(self._at)]
