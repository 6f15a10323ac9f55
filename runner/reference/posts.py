"""What a rank waits for: its part in a collective, a message, the creation of a group.

A call starts *work*, which is made of *posts*: a rank goes on once each of them may pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.call import Call
    from runner.operations.entries import Entry, Message, Refusal, Undefined
    from runner.plan import Group
    from runner.reference.creations import Series
    from runner.reference.meetings import Meeting


@dataclass(slots=True, kw_only=True, eq=False)
class Post:
    """One thing that a call waits for. `done_s` is None until it may pass, on virtual time."""

    rank: int
    call: Call
    time_s: float
    work: Work | None = None
    done_s: float | None = None
    #: an undefined value among what the call read
    tainted: Undefined | None = None
    #: (argument, what it holds afterwards, slack), stored when the work is complete for its rank;
    #: the argument is None for the buffer of a message
    outcome: list[tuple[str | None, Any, Any]] = field(default_factory=list)

    @property
    def link(self) -> str:
        """The name of what it is a part of, the same for all who take part."""
        raise NotImplementedError


@dataclass(slots=True, kw_only=True, eq=False)
class Joining(Post):
    """A rank that entered a collective.

    `entry` is the call's own; a copy once the rank has gone on without the others.
    """

    meeting: Meeting
    entry: Entry

    @property
    def link(self) -> str:
        """The meeting's name, the same for every member: group and position."""
        return f"{self.meeting.group.key}:{self.meeting.position}"


@dataclass(slots=True, kw_only=True, eq=False)
class Posted(Post):
    """A message that a rank sends or receives; `partner` is the other side once they met.

    `order` numbers all messages, `nth` those of one side between the same ends with the same tag.
    """

    group: Group
    message: Message
    payload: Any
    order: int
    nth: int
    partner: Posted | None = None

    @property
    def link(self) -> str:
        """The message's name, the same for both ends: group, ends, tag and which one.

        Which message a receive that met none would have taken, nobody knows: it has a `?`.
        """
        message = self.message
        if not message.sends:
            if self.partner is not None:
                return self.partner.link
            source = "any" if message.peer is None else message.peer
            return f"{self.group.key}:{source}>{self.rank}#{message.tag}:?{self.nth}"
        return f"{self.group.key}:{self.rank}>{message.peer}#{message.tag}:{self.nth}"


@dataclass(slots=True, kw_only=True, eq=False)
class Creating(Post):
    """A rank that called `new_group`.

    `ordinal` numbers its calls of the same series, `number` the creations of the program, `nth` the
    rank's calls that split the world, where a backend does; None: this one does not.
    """

    series: Series
    ordinal: int
    number: int
    nth: int | None
    group: Group

    @property
    def local(self) -> bool:
        """Whether only the members need call (`use_local_synchronization`)."""
        return bool(self.series)

    @property
    def link(self) -> str:
        """The creation's name, the same on every rank."""
        return f"new_group:{self.number}"


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """What one call started: complete when every post is done.

    `at` is the position of the call's event among those of its rank, `number` that of the work
    among theirs. It has no posts before it has `begun`.
    """

    rank: int
    call: Call
    start_s: float
    at: int
    number: int
    handle: str | None = None
    posts: list[Any] = field(default_factory=list)
    begun: bool = False
    waited: bool = False
    #: where it is waited for: the step and its iteration
    waited_at: tuple[int, tuple[int, ...]] | None = None
    #: what its wait raises, because the call was refused after it had returned
    refusal: Refusal | None = None

    @property
    def done(self) -> bool:
        """Whether every part may pass."""
        return self.begun and all(post.done_s is not None for post in self.posts)

    @property
    def done_s(self) -> float:
        """When the last part was done; call only if it is."""
        return max((post.done_s for post in self.posts), default=self.start_s)
