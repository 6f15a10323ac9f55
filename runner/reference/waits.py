"""The wait-for graph of a run that stands still, with a cause on every edge.

Ranks that stand in one meeting wait for the same absent ranks, so the graph goes from waiters to
a *need* and from the need to those who could meet it: its size is that of the program, not its
square. Whether a peer ever comes is read from its *future*: the calls that it would still make if
it were freed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from runner.operations.base import Collective, GroupCreation, Local, PointToPoint
from runner.plan import WORLD
from runner.problems import ScenarioError
from runner.reference.needing import needs
from runner.reference.posts import Creating, Joining, Post, Posted
from runner.trace import Wait

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runner.call import Call
    from runner.operations.entries import Message
    from runner.reference.creations import Series
    from runner.reference.simulation import Simulation
    from runner.reference.state import RankState

#: how far a stuck rank's future is looked at
HORIZON = 10_000

#: of the peers that one rank waits for, and of the edges of one need, how many stand in a trace
SHOWN, SHOWN_IN_ALL = 16, 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A rank, stuck in `post`, waits for rank `peer`; `because` says to do what."""

    post: Post
    peer: int
    because: str
    sure: bool = True

    def wait(self) -> Wait:
        """Return the edge as it stands in a trace."""
        step = self.post.call.step
        return Wait(
            waiter=self.post.rank,
            peer=self.peer,
            label=self.post.call.label,
            index=step.index,
            because=self.because,
            place=step.mark.short if step.mark else "",
            sure=self.sure,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Need:
    """What some ranks wait for: that each of `peers` does what `because` says.

    `anyone` tells that one of them is enough: a receive from anyone.
    """

    waiters: tuple[Post, ...]
    peers: tuple[int, ...]
    because: str
    anyone: bool = False

    def edges(self) -> list[Edge]:
        """Return the first edges of every waiter; fewer where the waiters are many."""
        shown = max(1, min(SHOWN, SHOWN_IN_ALL // len(self.waiters)))
        return [
            Edge(post=post, peer=peer, because=self.because, sure=not self.anyone)
            for post in self.waiters
            for peer in self.peers[:shown]
        ]


def needs_of(simulation: Simulation, states: Iterable[RankState]) -> list[Need]:
    """Return what blocked ranks wait for, those in one meeting together."""
    together: dict[tuple[int, str, int], list[Joining]] = {}
    found: list[Need] = []
    for state in states:
        for work in map(simulation.streams.first, state.waiting):
            for post in work.posts:
                if post.done_s is not None:
                    continue
                if isinstance(post, Joining):
                    operation = _collective(post)
                    key = (id(post.meeting), operation.name, id(needs(operation, post.entry)))
                    together.setdefault(key, []).append(post)
                else:
                    found.append(_alone(simulation, post))
    return [*(_meeting_need(simulation, posts) for posts in together.values()), *found]


def _collective(post: Joining) -> Collective:
    assert isinstance(post.call.operation, Collective)  # noqa: S101 -- only these join
    return post.call.operation


def _meeting_need(simulation: Simulation, posts: list[Joining]) -> Need:
    first = posts[0]
    operation, group = _collective(first), first.meeting.group
    joined = first.meeting.of(operation.name)
    missed = needs(operation, first.entry)
    absent = [
        rank
        for at, rank in enumerate(group.ranks)
        if at not in joined and (simulation.reading.strict or at in missed)
    ]
    because = f"to enter `{operation.label(first.entry)}`"
    if any(_was_there(simulation, first, rank) for rank in absent[:SHOWN]):
        because = f"to make operation {first.meeting.position + 1} on {group.name}"
    return Need(waiters=tuple(posts), peers=tuple(absent), because=because)


def _was_there(simulation: Simulation, post: Joining, rank: int) -> bool:
    """Whether a rank took the step in which `post` waits, as an earlier operation on the group."""
    meeting, call = post.meeting, post.call
    at = meeting.group.group_rank(rank)
    return any(
        (each.joined[at].call.step.index, each.joined[at].call.iteration)
        == (call.step.index, call.iteration)
        for each in simulation.meetings.of_group(meeting.group.key)
        if at in each.joined
    )


def _alone(simulation: Simulation, post: Post) -> Need:
    if isinstance(post, Posted):
        because = ("to receive" if post.message.sends else "to send") + on(simulation, post)
        if post.message.peer is not None:
            return Need(waiters=(post,), peers=(post.message.peer,), because=because)
        others = tuple(rank for rank in post.group.ranks if rank != post.rank)
        return Need(waiters=(post,), peers=others, because=because, anyone=True)
    assert isinstance(post, Creating)  # noqa: S101 -- the third and last kind of post
    if simulation.reading.on(post.group).splits:
        split = simulation.creations.splitting(post)
        absent = tuple(peer for peer in range(len(simulation.ranks)) if peer not in split)
        return Need(waiters=(post,), peers=absent, because="to split the world as well")
    here = simulation.creations.beside(post)
    absent = tuple(
        peer
        for peer in post.group.ranks
        if peer not in here or here[peer].group.ranks != post.group.ranks
    )
    return Need(waiters=(post,), peers=absent, because="to create the same group")


class Futures:
    """What each rank would still do; looking ahead uses up the ranks' programs."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._calls: dict[int, list[Call]] = {}

    def of(self, rank: int) -> list[Call]:
        """Return the calls that the rank has yet to begin, those that it has enqueued first."""
        enqueued = self._simulation.streams.enqueued(rank)
        return [*enqueued, *self.beyond(rank)] if enqueued else self.beyond(rank)

    def beyond(self, rank: int) -> list[Call]:
        """Return the calls after the one in which the rank stands."""
        if rank not in self._calls:
            self._calls[rank] = self._look(self._simulation.ranks[rank])
        return self._calls[rank]

    def _look(self, state: RankState) -> list[Call]:
        found: list[Call] = []
        created: Counter[Series] = Counter()
        if state.state != "blocked":
            return found
        try:
            for call in islice(state.walker, HORIZON):
                found.append(call)
                if isinstance(call.operation, Local):
                    if call.operation.ends(call.entry):
                        break
                    call.operation.run(state.process, call.entry)
                elif isinstance(call.operation, GroupCreation):
                    self._join(state, call, created)
                state.process.keep(call)
        except ScenarioError:
            pass  # what lies behind needs values that never come
        return found

    def _join(self, state: RankState, call: Call, created: Counter[Series]) -> None:
        """Let the rank know the group that it would create; a key where others wait with it."""
        assert isinstance(call.operation, GroupCreation)  # noqa: S101 -- only these create
        creations = self._simulation.creations
        group = call.operation.group(call.entry, self._simulation.plan.scenario.timeout_s)
        series = self._series(call)
        ordinal = creations.ordinal(state.rank, series) + created[series]
        created[series] += 1
        key = creations.key(group, series, ordinal)
        state.process.join(group if key is None else replace(group, key=key))

    def brings(self, post: Post, peer: int) -> str:
        """Return `late` if the peer would come, `never`, or `other`: it would do something else."""
        if peer not in range(len(self._simulation.ranks)):
            return "never"
        if isinstance(post, Joining):
            return self._joins(post, peer)
        if isinstance(post, Posted):
            wanted = [message for call in self.of(peer) for message in messages_of(call)]
            tags = self._simulation.reading.on(post.group).tags
            late = any(_answers(post, message, tags=tags) for message in wanted)
            return "late" if late else "never"
        assert isinstance(post, Creating)  # noqa: S101 -- the third and last kind of post
        return self._creates(post, peer)

    def _joins(self, post: Joining, peer: int) -> str:
        key = post.meeting.group.key
        ahead = post.meeting.position - self._simulation.meetings.position(key, peer)
        if ahead < 0:
            return "other"
        coming = [
            call
            for call in self.of(peer)
            if isinstance(call.operation, Collective) and call.entry.group.key == key
        ]
        if ahead >= len(coming):
            return "never"
        return "late" if coming[ahead].operation is post.call.operation else "other"

    def _creates(self, post: Creating, peer: int) -> str:
        creations = self._simulation.creations
        if peer in creations.beside(post):
            return "other"
        coming = [
            call
            for call in self.of(peer)
            if isinstance(call.operation, GroupCreation) and self._series(call) == post.series
        ]
        ahead = post.ordinal - creations.ordinal(peer, post.series)
        return "late" if ahead < len(coming) else "never"

    def _series(self, call: Call) -> Series:
        assert isinstance(call.operation, GroupCreation)  # noqa: S101 -- asked only of these
        group = call.operation.group(call.entry, self._simulation.plan.scenario.timeout_s)
        return self._simulation.creations.series(group, local=call.operation.local(call.entry))


def messages_of(call: Call) -> tuple[Message, ...]:
    """Return the messages that a call would post."""
    operation = call.operation
    if not isinstance(operation, PointToPoint) or operation.refuse(call.entry) is not None:
        return ()
    return operation.messages(call.entry)


def _answers(post: Posted, message: Message, *, tags: bool) -> bool:
    return (
        message.sends != post.message.sends
        and (not tags or message.tag == post.message.tag)
        and (message.peer == post.rank or (message.peer is None and post.message.sends))
    )


def on(simulation: Simulation, post: Posted) -> str:
    """Return ` on GROUP` where a message is not on the world, or others are on other groups."""
    box = simulation.mailbox
    groups = {each.group.key for each in (*box.sends, *box.receives)}
    return f" on {post.group.name}" if post.group.key != WORLD or len(groups) > 1 else ""


def gone(simulation: Simulation, rank: int) -> bool:
    """Whether a rank ended by a fault or an exception: then its absence is no fault of its own."""
    if not 0 <= rank < len(simulation.ranks):
        return False
    state = simulation.ranks[rank]
    return state.state in {"raised", "died"} or bool(state.broken)
