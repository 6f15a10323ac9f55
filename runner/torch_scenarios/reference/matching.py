"""Which calls match: collectives by position, messages by their ends and tag, creations."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from torch_scenarios.expressions.values import DEPTHS, Undefined, roots_of
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.process import Call, Process
from torch_scenarios.model.scenario import Function, Step, find_stated
from torch_scenarios.model.traits import Counts
from torch_scenarios.operations.base import (
    Collective,
    Entry,
    Group,
    Message,
    Refusal,
    RemoteCall,
)
from torch_scenarios.reference.semantics import Semantics

# -------------------------------------------------------------------------------------------------
# What a rank waits for: its part in a collective, a message, the creation of a group.
#
# A call starts *work*, which is made of *posts*: a rank goes on once each of them may pass.


T = TypeVar("T")

#: group, rank, peer, tag and side of a message
Ends: TypeAlias = tuple[str, int, int | None, int, bool]
#: counts the messages of some ends
Counted: TypeAlias = Callable[[Ends], int]


class Post(Struct, kw_only=True, eq=False):
    """One thing that a call waits for. `done_s` is None until it may pass, on virtual time.

    A collective is one post, `batch_isend_irecv` of four messages four, and `new_group` one. All of
    a call's posts are one :class:`Work`. The trace knows a post by its `link`, a text that both
    ends of a message and all members of a collective share:

        world:2              the third collective of the world
        world:0>1#7:0        the first message from rank 0 to rank 1 with the tag 7
        new_group:1          the second group that the program creates

    A `tainted` post has read something undefined. What it brings to others is undefined too, for
    the same cause, so that one mistake is one diagnosis and not one for each rank that it reaches.
    """

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
    #: whether it was done while many ranks were taken together
    past: bool = False

    @property
    def link(self) -> str:
        """The name of what it is a part of, the same for all who take part."""
        raise NotImplementedError


class CollectivePost(Post, kw_only=True, eq=False):
    """A rank that entered a collective.

    `entry` is the call's own; a copy once the rank has gone on without the others.

        rank 0   broadcast x from 0, x = 7      passes at once: it needs no other rank
        rank 1   sleep 1, broadcast x from 0    gets what x was when rank 0 called

    Without that copy rank 1 would be given 7.
    """

    match: CollectiveMatch
    operation: Collective
    entry: Entry
    #: which of the strokes of the run it is
    number: int = -1

    @property
    def link(self) -> str:
        """Group and position, the same for every member."""
        return f"{self.match.group.key}:{self.match.position}"


class MessagePost(Post, kw_only=True, eq=False):
    """A message that a rank sends or receives; `partner` is the other side once they met.

    `order` numbers all messages, `nth` those of one side between the same ends with the same tag.

    Messages between the same ends with the same tag do not overtake each other (MPI 4.1, 3.5), so
    that ends, tag and `nth` name a message whichever order of arrival is tried.

        rank 0   send a to 1, send b to 1       world:0>1#0:0 is a, world:0>1#0:1 is b
        rank 1   recv from 0, recv from 0       the first receive has a in each order
    """

    group: Group
    message: Message
    payload: Any
    order: int
    nth: int
    partner: MessagePost | None = None
    #: of the messages of the run, and which row of it this one is
    number: int = -1
    row: int = 0
    #: how many there were before those that `nth` counts, by the rank and the ends
    before: Counted | None = None

    @property
    def _number(self) -> int:
        message = self.message
        ends = (self.group.key, self.rank, message.peer, message.tag, message.sends)
        return self.nth + (self.before(ends) if self.before is not None else 0)

    @property
    def link(self) -> str:
        """The message's name, the same for both ends: group, ends, tag and which one.

        Which message a receive that met none would have taken is not known: it has a `?`.
        """
        message = self.message
        if not message.sends:
            if self.partner is not None:
                return self.partner.link
            source = "any" if message.peer is None else message.peer
            return f"{self.group.key}:{source}>{self.rank}#{message.tag}:?{self._number}"
        return f"{self.group.key}:{self.rank}>{message.peer}#{message.tag}:{self._number}"


class CreationPost(Post, kw_only=True, eq=False):
    """A rank that called `new_group`.

    `ordinal` numbers its calls of the same series, `number` the creations of the program, `nth` the
    rank's calls that split the world, where a backend does; None: this one does not. `failed_s` is
    when the call raises because a member waited too long for another; None: it does not. `gave_up`:
    this rank is one that waited.

        rank 0   new_group [0, 1]   new_group [0, 2]      ordinals 0 and 1 of the series ((), 0)
        rank 1   new_group [0, 1]   new_group [0, 2]      it is no member of the second: it passes
        rank 2   new_group [0, 1]                         rank 0 waits for its second call for ever
    """

    series: Series
    ordinal: int
    number: int
    nth: int | None
    group: Group
    failed_s: float | None = None
    gave_up: bool = False

    @property
    def local(self) -> bool:
        """Whether only the members need call (`use_local_synchronization`)."""
        return bool(self.series[0])

    @property
    def link(self) -> str:
        """The creation's name, the same on every rank."""
        return f"new_group:{self.number}"


class FunctionCall(Post, kw_only=True, eq=False):
    """A call of a function on rank `to`; `given` are its arguments as they were at the call.

    `order` numbers the calls of the run. Once it was `performed`, `value` is what it returned and
    `failure` what it raised there; it may have been `late` for its caller. `raced`: it touches what
    a step of that rank has in use.

        rank 0   rpc_async(1, push, g)     g = 0           push gets what g was: RPC pickles
        rank 1   all_reduce w              (push: w += g)  raced: the all_reduce still uses w
    """

    to: int
    function: Function
    given: list[Any]
    order: int
    performed: bool = False
    late: bool = False
    raced: bool = False
    value: Any = None
    failure: str | None = None

    @property
    def keeps(self) -> bool:
        """Whether the value stays where the function ran, to be fetched as often as one likes."""
        return isinstance(self.call.operation, RemoteCall) and self.call.operation.keeps_there

    @property
    def link(self) -> str:
        """The call's name."""
        return f"call:{self.rank}>{self.to}:{self.order}"


class Work(Struct, kw_only=True, eq=False):
    """What one call started: complete when every post is done.

    `at` is the position of the call's event among those of its rank, `number` that of the work
    among theirs. It has no posts before it has `begun`: then it posts `messages`, or enters the
    next collective where there are none.

    It is torch's `Work` (torch.distributed, "Synchronous and asynchronous collective operations"):
    a call with `async_op` hands it to the program, every other one waits for it itself.

                          call        begun         done          waited
        send (blocking)   rank 0 ---- posts ------- received ---- at once: the call returns
        isend, wait       returns     posts         received      at `wait`: only then x is free
        on a stream       returns     once what is before it on the stream is done
    """

    rank: int
    call: Call
    start_s: float
    at: int
    number: int
    handle: str | None = None
    messages: Sequence[Message] = ()
    #: an undefined value among what the call read
    tainted: Undefined | None = None
    posts: list[Any] = field(default_factory=list)
    begun: bool = False
    waited: bool = False
    #: where it is waited for: the step and its iteration
    waited_at: tuple[int, tuple[int, ...]] | None = None
    #: and how many works the rank has then; 0 where the call itself waits
    waited_after: int = 0
    #: what its wait raises, because the call was refused after it had returned
    refusal: Refusal | None = None

    def hold(self, posts: Sequence[Post]) -> None:
        """Be made of these posts."""
        self.posts = list(posts)
        for post in posts:
            post.work = self

    @property
    def done(self) -> bool:
        """Whether every part may pass."""
        if len(self.posts) == 1:
            return self.begun and self.posts[0].done_s is not None
        return self.begun and all(post.done_s is not None for post in self.posts)

    @property
    def done_s(self) -> float:
        """When the last part was done; call only if it is."""
        return max((post.done_s for post in self.posts), default=self.start_s)


# -------------------------------------------------------------------------------------------------
# Which calls match in collectives: by their position on a group.
#
# Pure bookkeeping: nothing here knows what an operation computes, or when a rank may go on.


class CollectiveMatch(Struct, kw_only=True, eq=False):
    """The n-th collective of a group: who entered it, with which operation.

    In a correct program all members enter the same operation. `settled` tells that the result was
    computed; `spoiled` names the mismatch that leaves it undefined. `hopeful` are those who may
    pass before all are there, by their operation and one member that they miss, each with the
    members that are still to be looked at. `early` is what an operation with some root leaves on
    each member, and its slack, as far as it depends on the root alone.

    Position decides and not the operation (MPI 4.1, 6.14), which is why the mistake is seen at all:

        position            0              1
        rank 0              all_reduce     barrier
        rank 1              barrier        all_reduce      `call_mismatch` at position 0

    An engine that matched by operation would let both ranks wait at position 0 for ever, and could
    only say that they wait for each other.
    """

    group: Group
    position: int
    joined: dict[int, CollectivePost] = field(default_factory=dict)  # by group rank
    entered: dict[str, dict[int, CollectivePost]] = field(default_factory=dict)  # by operation
    hopeful: dict[tuple[str, int], list[tuple[CollectivePost, Iterator[int]]]] = field(
        default_factory=dict
    )
    early: dict[tuple[str, int], Any] = field(default_factory=dict)
    first_s: float = 0.0
    settled: bool = False
    spoiled: str | None = None

    def add(self, member: CollectivePost) -> None:
        """Let a member enter its operation."""
        self.first_s = min(self.first_s, member.time_s) if self.joined else member.time_s
        at, name = member.entry.group_rank, member.operation.name
        self.joined[at] = self.entered.setdefault(name, {})[at] = member

    def of(self, name: str) -> dict[int, CollectivePost]:
        """Return those who entered that operation and have not given up, by group rank."""
        return self.entered.get(name, {})

    def compute_once(self, key: tuple[str, int] | None, compute: Callable[[], T]) -> T:
        """Return what is computed once for a key, and each time where there is none."""
        if key is None:
            return compute()
        if key not in self.early:
            self.early[key] = compute()
        found: T = self.early[key]
        return found

    def free(
        self, member: CollectivePost, needs: Callable[[Collective, Entry], frozenset[int]]
    ) -> Iterator[CollectivePost]:
        """Yield who misses no other member, now that one has come, by what one `needs`."""
        name = member.operation.name
        waiting = self.hopeful.pop((name, member.entry.group_rank), [])
        needed, here = needs(member.operation, member.entry), self.of(name)
        if len(needed) < self.group.size:
            waiting.append((member, iter(needed)))
        for other, coming in waiting:
            missing = next((at for at in coming if at not in here), None)
            if missing is None:  # who was there may have given up meanwhile
                rest = iter(needs(other.operation, other.entry))
                missing = next((at for at in rest if at not in here), None)
                if missing is None:
                    yield other
                    continue
                self.hopeful.setdefault((name, missing), []).append((other, rest))
            else:
                self.hopeful.setdefault((name, missing), []).append((other, coming))

    def withdraw(self, collective_post: CollectivePost) -> None:
        """Let a member give up: it no longer counts as having entered."""
        for members in self.entered.values():
            for group_rank in [at for at, other in members.items() if other is collective_post]:
                del members[group_rank]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of the operations that were entered here, in order of group ranks."""
        if len(self.entered) == 1:
            return tuple(self.entered)
        return tuple(dict.fromkeys(self.joined[at].operation.name for at in sorted(self.joined)))

    @property
    def complete(self) -> bool:
        """Whether every member entered the same operation."""
        return len(self.joined) == self.group.size and len(self.entered) == 1


class HistoryMissingError(Exception):
    """Something is asked of what ranks did together that is not kept: each walks from the start.

    Cohorts keep columns and drop what no step looks at any more. Where the walk goes on from them
    and finds a race with work that is over, it would have to spoil what other ranks got of it long
    ago. That is not undone: the exception throws the run away, and the program is walked from its
    beginning (decision 42). So it costs time and never an answer.
    """


class EarlierMatches(Protocol):
    """What ranks did before they went on by themselves: they were taken together with others.

    The walk that goes on from cohorts numbers collectives and messages from where those stopped.
    Counting from 0 would give two messages of one run the same name.
    """

    def position(self, key: str, rank: int) -> int:
        """Return how many collectives a rank has entered on a group."""

    def count_posted(self, ends: Ends) -> int:
        """Return how many messages a rank has posted to or from these ends."""

    def find_entered(self, key: str, rank: int) -> Iterator[Call]:
        """Yield the collectives that a rank has behind it on a group."""


class CollectiveMatches:
    """All collectives of a run, by group and position; `before` has those that are over.

    Each rank has a count of its own for each group, and its next collective is at that position. No
    rank is asked for what others do: that is how the same program deadlocks in torch.

        group            world           tp01         world
        rank 0           position 0      position 0   position 1
        rank 1           position 0      position 0   position 1
        rank 2           position 0                   position 1
    """

    def __init__(self, before: EarlierMatches | None = None) -> None:
        self._before = before
        self._at: dict[tuple[str, int], CollectiveMatch] = {}
        self._next: dict[tuple[str, int], int] = {}
        self._of: dict[str, list[CollectiveMatch]] = {}

    def join(self, call: Call, time_s: float, *, position: int | None = None) -> CollectivePost:
        """Enter the rank's next collective on its group, or the one of a position."""
        entry: Entry = call.entry
        group = entry.group
        if position is None:
            position = self.position(group.key, entry.rank)
        self._next[group.key, entry.rank] = position + 1
        match = self._at.get((group.key, position))
        if match is None:
            match = self._at[group.key, position] = CollectiveMatch(group=group, position=position)
            self._of.setdefault(group.key, []).append(match)
        assert isinstance(call.operation, Collective)
        member = CollectivePost(
            rank=entry.rank,
            call=call,
            time_s=time_s,
            match=match,
            operation=call.operation,
            entry=entry,
        )
        match.add(member)
        return member

    def position(self, group_key: str, rank: int) -> int:
        """Return how many collectives the rank has entered on the group."""
        found = self._next.get((group_key, rank))
        if found is None:
            found = self._before.position(group_key, rank) if self._before is not None else 0
            self._next[group_key, rank] = found
        return found

    def calls(self, group_key: str, rank: int) -> Iterator[Call]:
        """Yield the collectives that a rank has entered on a group, in order."""
        if self._before is not None:
            yield from self._before.find_entered(group_key, rank)
        for match in self._of.get(group_key, ()):
            at = match.group.group_rank(rank)
            if at in match.joined:
                yield match.joined[at].call

    def all(self) -> list[CollectiveMatch]:
        """Return each one, in the order in which the first member came."""
        return list(self._at.values())

    def dissolve(self) -> None:
        """Forget who entered what."""
        for match in self._at.values():
            match.joined.clear()
            match.entered.clear()
            match.hopeful.clear()


def are_unlikely_pair(plan: Plan, one: Step, other: Step) -> bool:
    """Whether two steps that met in a collective are likely to be no pair.

    They stand at different places, carry tensors of different names, and no expectation reads
    any of these: nothing tells that the author means them to meet.
    """
    mine, yours = _find_carried(one), _find_carried(other)
    if one.mark == other.mark or not mine or not yours or mine & yours:
        return False
    return find_stated(plan.scenario).isdisjoint(mine | yours)


def _find_carried(step: Step) -> frozenset[str]:
    """Return the names of the tensors that a collective carries."""
    params = step.operation.params if step.operation else ()
    forms = [step.arguments.get(param.name) for param in params if param.kind in DEPTHS]
    return frozenset().union(*map(roots_of, forms))


# -------------------------------------------------------------------------------------------------
# Which calls match in messages: by their two ends and their tag, in order.
#
# Pure bookkeeping: nothing here knows what is sent, or when a rank may go on.

Address = tuple[str, int, int]


class Mailbox:
    """Messages that were posted and have not met, in order of posting.

    They lie by address: group, receiver and tag; within one, sends by their source. Where an option
    does not look at tags, all have the same.
    """

    def __init__(self, semantics: Semantics, before: EarlierMatches | None = None) -> None:
        self._semantics = semantics
        self._before = None if before is None else before.count_posted
        self._sends: dict[Address, dict[int, deque[MessagePost]]] = {}
        self._receives: dict[Address, dict[int | None, deque[MessagePost]]] = {}
        self.abandoned: list[MessagePost] = []
        #: the messages that have not met, by side and rank; empty where it is to be found out
        self._left: dict[tuple[bool, int | None], list[MessagePost]] = {}
        self._groups: frozenset[str] | None = None
        #: whether a rank ever received from anyone
        self.from_anyone = False
        #: how many messages were posted
        self.count = 0
        self._counts: dict[tuple[str, int, int | None, int, bool], int] = {}

    @property
    def sends(self) -> list[MessagePost]:
        """The sends that no receive has met, in order."""
        return self.find_left(None, sends=True)

    @property
    def receives(self) -> list[MessagePost]:
        """The receives that no send has met, in order."""
        return self.find_left(None, sends=False)

    def find_left(self, rank: int | None, *, sends: bool) -> list[MessagePost]:
        """Return the messages of a rank (None: of all) that have not met, in order."""
        if not self._left:
            for side, boxes in ((True, self._sends), (False, self._receives)):
                posts = (post for box in boxes.values() for each in box.values() for post in each)
                lying = sorted(posts, key=_find_age)
                self._left[side, None] = lying
                for post in lying:
                    self._left.setdefault((side, post.rank), []).append(post)
        return self._left.get((sends, rank), [])

    @property
    def groups(self) -> frozenset[str]:
        """The keys of the groups of the messages that have not met."""
        if self._groups is None:
            self._groups = frozenset(each.group.key for each in (*self.sends, *self.receives))
        return self._groups

    def _forget(self) -> None:
        self._left.clear()
        self._groups = None

    def post(self, call: Call, group: Group, message: Message, time_s: float) -> MessagePost:
        """Add a message; :meth:`partner_of` then looks for its other side."""
        self._forget()
        self.count += 1
        self.from_anyone |= message.peer is None
        rank = call.entry.rank
        ends = (group.key, rank, message.peer, message.tag, message.sends)
        nth = self._counts[ends] = self._counts.get(ends, -1) + 1
        posted = MessagePost(
            rank=rank,
            call=call,
            time_s=time_s,
            group=group,
            message=message,
            payload=message.payload,
            order=self.count,
            nth=nth,
            before=self._before,
        )
        self._queue(posted).append(posted)
        return posted

    def count_anew(self) -> None:
        """Count messages from here on: those so far are among what was posted `before`."""
        self._counts.clear()

    def address(self, posted: MessagePost) -> Address:
        """Return where a message is to be found by its receiver: group, receiver, tag."""
        message, group = posted.message, posted.group
        receiver = (message.peer or 0) if message.sends else posted.rank
        return group.key, receiver, message.tag if self._semantics.on(group).tags else 0

    def _queue(self, posted: MessagePost) -> deque[MessagePost]:
        address, message = self.address(posted), posted.message
        if message.sends:
            return self._sends.setdefault(address, {}).setdefault(posted.rank, deque())
        return self._receives.setdefault(address, {}).setdefault(message.peer, deque())

    def count_under_way(self, send: MessagePost) -> int:
        """Return how many messages were sent before this one on its way, and not received."""
        return sum(post.order < send.order for post in self._queue(send))

    def partner_of(self, posted: MessagePost) -> MessagePost | None:
        """Return the opposite side that must meet this one, or None.

        A message that an earlier receive from anyone could take waits until nothing else moves:
        which message it takes is a choice (ISP's delayed matching, Vakkalanka et al. 2008).
        """
        message = posted.message
        address = self.address(posted)
        if message.sends:
            receives = self._receives.get(address, {})
            named = _find_first(receives.get(posted.rank))
            anyone = _find_first(receives.get(None))
            if named is None or (anyone is not None and anyone.order < named.order):
                return None
            earlier = _find_first(self._sends[address].get(posted.rank))
            return named if earlier is posted else None
        if message.peer is None:
            return None
        anyone = _find_first(self._receives[address].get(None))
        if anyone is not None and anyone.order < posted.order:
            return None
        if _find_first(self._receives[address].get(message.peer)) is not posted:
            return None
        return _find_first(self._sends.get(address, {}).get(message.peer))

    def candidates(self, receive: MessagePost) -> list[MessagePost]:
        """Return the sends that a receive from anyone may take now: the first of each source."""
        sources = self._sends.get(self.address(receive), {})
        return [queue[0] for _, queue in sorted(sources.items()) if queue]

    def open(self) -> list[tuple[MessagePost, list[MessagePost]]]:
        """Return the receives from anyone that may take a message now, with what they may take.

        In order of their ranks; of those with one address the first.
        """
        first: dict[Address, MessagePost] = {}
        for address, receives in self._receives.items():
            receive = _find_first(receives.get(None))
            if receive is not None:
                first[address] = receive
        ordered = sorted(first.values(), key=lambda each: (each.rank, each.order))
        found = [(receive, self.candidates(receive)) for receive in ordered]
        return [(receive, sends) for receive, sends in found if sends]

    def find_named_receive(self, send: MessagePost) -> MessagePost | None:
        """Return the first receive that names the sender of a message, or None."""
        return _find_first(self._receives.get(self.address(send), {}).get(send.rank))

    def meet(self, send: MessagePost, receive: MessagePost) -> None:
        """Take both out of the box."""
        self._forget()
        self._queue(send).remove(send)
        self._queue(receive).remove(receive)
        send.partner, receive.partner = receive, send

    def withdraw(self, posted: MessagePost) -> None:
        """Take out a message that its rank gave up."""
        self._forget()
        queue = self._queue(posted)
        if posted in queue:
            queue.remove(posted)
            self.abandoned.append(posted)


def _find_first(queue: deque[MessagePost] | None) -> MessagePost | None:
    return queue[0] if queue else None


def _find_age(posted: MessagePost) -> int:
    return posted.order


# -------------------------------------------------------------------------------------------------
# Which calls match in `new_group`: by count, or by the members that a call names.
#
# Pure bookkeeping: nothing here knows when a rank may go on.

#: creations that ranks meet in one after the other: no members are those of the whole world,
#: members those of groups that only they create. The number is what a rank has counted, 0 where the
#: semantics do not look at it
Series = tuple[tuple[int, ...], int]

#: units of work of one rank's part in a creation, and of each member that it names
CREATION_WORK, MEMBER_WORK = 20_000, 30


class Creations:
    """The groups that ranks create while the program runs.

    Ranks meet in their n-th creation of a series. All ordinary calls of `new_group` are one
    series, whatever members they name. With `use_local_synchronization` the calls that name the
    same members are a series of their own: torch names such a group after its ranks, every other
    by a counter (`torch.distributed.distributed_c10d._process_group_name`). Where a backend
    counts for its names, a series is also of what a rank has counted.
    """

    def __init__(self) -> None:
        self._at: dict[tuple[Series, int], dict[int, CreationPost]] = {}
        self._keys: dict[tuple[Series, int], dict[tuple[int, ...], str]] = {}
        self._numbers: dict[tuple[Series, int], int] = {}
        self._next: dict[tuple[int, Series], int] = {}
        self._named: dict[str, int] = {}
        #: series -> the first of its creations on which ranks disagree
        self._disputed: dict[Series, int] = {}
        self._alike: dict[tuple[Series, int, str], list[CreationPost]] = {}
        self._splits: dict[int, dict[int, CreationPost]] = {}
        #: rank -> how many groups it has named: those of ordinary calls, and those it is in
        self._calls: Counter[int] = Counter()
        self._split: dict[int, int] = {}
        #: rank, series -> the key of the last group that the rank entered there
        self._entered: dict[tuple[int, Series], str] = {}
        #: creations under a name that their rank has used before, for a group that it destroyed
        self.reused: list[CreationPost] = []
        #: calls under a name that their rank still uses
        self.refused: list[Call] = []

    def series(
        self, group: Group, process: Process, counts: Counts, *, local: bool, coming: int = 0
    ) -> Series:
        """Return the series in which a rank creates a group, by what a backend has it count.

        `coming` is how many calls it makes before this one that it has not made yet.
        """
        if counts == "calls":
            counted = self._calls[process.rank] + coming
        else:
            counted = len(process.alive) if counts and local else 0
        return (tuple(sorted(group.ranks)) if local else (), counted)

    def uses(self, rank: int, series: Series) -> str | None:
        """Return the key of the last group that a rank entered in a series, or None."""
        return self._entered.get((rank, series))

    def enter(self, creating: CreationPost) -> None:
        """Note that a rank has passed a creation."""
        self._entered[creating.rank, creating.series] = creating.group.key

    def ordinal(self, rank: int, series: Series) -> int:
        """Return how many groups of the series the rank has created by steps."""
        return self._next.get((rank, series), 0)

    def create(
        self, call: Call, time_s: float, group: Group, series: Series, *, splits: bool
    ) -> CreationPost:
        """Enter the rank's next creation of a series; its group gets a key that its members share.

        `splits`: the rank splits the world for it, as every rank must that makes such a call.
        """
        rank = call.entry.rank
        self._calls[rank] += not series[0] or rank in group.ranks
        ordinal = self.ordinal(rank, series)
        self._next[rank, series] = ordinal + 1
        place = (series, ordinal)
        here = self._at.setdefault(place, {})
        keys = self._keys.setdefault(place, {})
        if group.ranks not in keys:
            nth = self._named.get(group.name, 0)
            self._named[group.name] = nth + 1
            keys[group.ranks] = f"{group.name}#{nth}"
        creating = CreationPost(
            rank=rank,
            call=call,
            time_s=time_s,
            series=series,
            ordinal=ordinal,
            number=self._numbers.setdefault(place, len(self._numbers)),
            nth=self._split.get(rank, 0) if splits else None,
            group=replace(group, key=keys[group.ranks]),
        )
        here[rank] = creating
        if len(keys) > 1:
            self._disputed[series] = min(ordinal, self._disputed.get(series, ordinal))
        if rank in group.ranks:
            self._alike.setdefault((series, ordinal, creating.group.key), []).append(creating)
        if creating.nth is not None:
            self._split[rank] = creating.nth + 1
            self._splits.setdefault(creating.nth, {})[rank] = creating
        return creating

    def find_splitting(self, creating: CreationPost) -> dict[int, CreationPost]:
        """Return who splits the world with a rank, by rank; only itself where it does not."""
        if creating.nth is None:
            return {creating.rank: creating}
        return self._splits[creating.nth]

    def key(self, group: Group, series: Series, ordinal: int) -> str | None:
        """Return the key that a rank which created the group gave it, or None."""
        return self._keys.get((series, ordinal), {}).get(group.ranks)

    def find_members(self, creating: CreationPost) -> dict[int, CreationPost]:
        """Return who is in the same creation, by rank."""
        return self._at[creating.series, creating.ordinal]

    def find_agreeing(self, creating: CreationPost) -> list[CreationPost]:
        """Return the members that are in the same creation and name the same members."""
        return self._alike[creating.series, creating.ordinal, creating.group.key]

    def present(self, creating: CreationPost) -> list[CreationPost]:
        """Return the members that are in the same creation, whatever members they name."""
        here = self.find_members(creating)
        return [here[rank] for rank in creating.group.ranks if rank in here]

    def is_disputed(self, series: Series, ordinal: int) -> bool:
        """Whether ranks disagree on that creation of a series, or on one before it."""
        return self._disputed.get(series, ordinal + 1) <= ordinal

    def all(self) -> list[dict[int, CreationPost]]:
        """Return the creations, in the order in which the first rank came."""
        return list(self._at.values())


# -------------------------------------------------------------------------------------------------
# The order in which a rank's work begins, where calls are enqueued and not made at once.
#
#     host    isend to 1   irecv from 1   wait
#     stream  [isend ......................] [irecv]      begins once the send is done
#
# A device does the calls of one group one after the other, whichever of them a program waits for.
# What is enqueued behind a call that never ends never begins: no call meets it. A batch is one
# call: what it sends and receives begins at one stroke.
#
# So a program that Gloo completes hangs on NCCL, and no wait in it is wrong:
#
#     rank 0   isend x to 1, irecv y from 1     stream  [isend]  [irecv]
#     rank 1   isend x to 0, irecv y from 0     stream  [isend]  [irecv]
#
# Gloo makes both calls at once, and the receives take what was sent. On a stream each send is done
# when the peer's receive takes it (a large message is not buffered), and each receive is enqueued
# behind a send: the ranks wait for each other in a circle that no line of the program shows. As
# `batch_isend_irecv` it is one call, `ncclGroupStart` to `ncclGroupEnd`, and completes.
#
# Sources: CUDA C++ Programming Guide, "Streams" (what is in one stream is done in order; the host
# goes on); NCCL User Guide, "Point-to-point communication" (sends and receives that must progress
# together belong between the calls of a group); torch's ProcessGroupNCCL keeps one stream for each
# communicator of a device. Whether there is one order for a group, one for all of a rank's work or
# none is a trait of the backend (`Semantics.order`), so that nothing here names a backend.
#
# A wait does not belong to it: on a device `wait` makes the current stream wait and lets the host
# go on, which :class:`torch_scenarios.reference.semantics.Semantics` says for itself.


class Streams:
    """The works of all ranks that are enqueued and not done, by the stream they are on.

    A stream is a queue: its first work has begun, those behind it have not, and no other rank meets
    them. With the order `free` (Gloo, MPI) there is no queue, and each work begins with its call.
    """

    def __init__(self, semantics: Semantics) -> None:
        """Begin with nothing enqueued."""
        self._semantics = semantics
        self._free = semantics.order == "free"
        self._queues: dict[tuple[int, str], deque[Work]] = {}
        self._over: deque[Work] = deque()

    def enqueue(self, work: Work) -> bool:
        """Add a work; whether it begins now, and not only once what is before it is done."""
        stream = None if self._free else self._stream(work)
        if stream is None:
            return True
        queue = self._queues.setdefault(stream, deque())
        queue.append(work)
        return queue[0] is work

    def holds(self, work: Work) -> bool:
        """Whether the rank's host never returns from the call: it enqueues nothing."""
        standing = self._semantics.standing
        return bool(standing) and standing.get(work.rank) == work.number

    def _stream(self, work: Work) -> tuple[int, str] | None:
        group = work.call.entry.group
        order = self._semantics.on(group).order
        return None if order == "free" else (work.rank, group.key if order == "group" else "")

    def note(self, work: Work) -> None:
        """Note that a part of a work is done: what is behind it may be next."""
        if self._queues and work.done:
            self._over.append(work)

    def advance(self) -> Iterator[Work]:
        """Yield each work that has become the first of its stream: it begins now."""
        while self._over:
            stream = self._stream(self._over.popleft())
            queue = self._queues.get(stream) if stream is not None else None
            while queue and queue[0].done:
                over = queue.popleft()
                if queue and not queue[0].begun:
                    queue[0].start_s = max(queue[0].start_s, over.done_s)
                    yield queue[0]

    def first(self, work: Work) -> Work:
        """Return what a work really waits for: the first of its stream, itself if it has begun."""
        stream = self._stream(work)
        queue = self._queues.get(stream) if stream is not None and not work.begun else None
        return queue[0] if queue and work in queue else work

    def find_delayed(self) -> Iterator[tuple[Work, Work]]:
        """Yield works that never began, each with the one that is first on its stream."""
        for queue in self._queues.values():
            yield from ((work, queue[0]) for work in list(queue)[1:])

    def find_enqueued(self, rank: int) -> list[Call]:
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
