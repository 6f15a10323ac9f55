"""The wait-for graph of a run at rest, with a cause on every edge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.errors import ScenarioError
from torch_scenarios.model.process import Call
from torch_scenarios.model.scenario import steps_of
from torch_scenarios.operations.base import (
    Collective,
    Compound,
    GroupCreation,
    Local,
    Message,
    PointToPoint,
    ProgramError,
    RefusedError,
)
from torch_scenarios.reference.matching import (
    CollectivePost,
    CreationPost,
    FunctionCall,
    MessagePost,
    Post,
    Series,
)
from torch_scenarios.reference.rules.collective import needs
from torch_scenarios.reference.state import RankState, Run
from torch_scenarios.reference.symptoms import PostEdge, Symptom
from torch_scenarios.vocabulary import WORLD

# The wait-for graph of a run that stands still, with a cause on every edge.
#
# Ranks that stand in one match wait for the same absent ranks, so the graph goes from waiters to
# a *need* and from the need to those who could meet it: its size is that of the program, not its
# square. Whether a peer ever comes is read from its *future*: the calls that it would still make
# if it were freed.

#: how far a stuck rank's future is looked at
HORIZON = 10_000

#: of the peers that one rank waits for, and of the edges of one need, how many stand in a trace
SHOWN, SHOWN_IN_ALL = 16, 4_096


class Need(Struct, frozen=True, kw_only=True, eq=False):
    """What some ranks wait for: that each of `peers` does what `because` says.

    `act` is that in one word, as :class:`torch_scenarios.errors.AwaitedAct` has it. `anyone` tells
    that one of them is enough: a receive from anyone.

    Ranks that wait in one collective wait for the same absent ranks. With an edge for each pair a
    barrier that 512 of 1,024 ranks miss would be 262,144 edges; as one need it is 1,024:

        waiters 0 ... 511   ->   need: "to enter `barrier`"   ->   peers 512 ... 1,023
    """

    waiters: tuple[Post, ...]
    peers: tuple[int, ...]
    because: str
    act: str
    anyone: bool = False

    def edges(self) -> list[PostEdge]:
        """Return the first edges of every waiter; fewer where the waiters are many."""
        shown = max(1, min(SHOWN, SHOWN_IN_ALL // len(self.waiters)))
        return [
            PostEdge(post=post, peer=peer, because=self.because, act=self.act, sure=not self.anyone)
            for post in self.waiters
            for peer in self.peers[:shown]
        ]


def needs_of(run: Run, states: Iterable[RankState]) -> list[Need]:
    """Return what blocked ranks wait for, those in one match together."""
    together: dict[tuple[int, str, frozenset[int]], list[CollectivePost]] = {}
    found: list[Need] = []
    for state in states:
        for work in map(run.streams.first, state.waiting):
            for post in work.posts:
                if post.done_s is not None:
                    continue
                if isinstance(post, CollectivePost):
                    operation = post.operation
                    key = (id(post.match), operation.name, needs(operation, post.entry))
                    together.setdefault(key, []).append(post)
                else:
                    found.append(_make_need(run, post))
    return [*(_find_collective_need(run, posts) for posts in together.values()), *found]


def _find_collective_need(run: Run, posts: list[CollectivePost]) -> Need:
    first = posts[0]
    operation, group = first.operation, first.match.group
    joined = first.match.of(operation.name)
    missed = needs(operation, first.entry)
    absent = [
        rank
        for at, rank in enumerate(group.ranks)
        if at not in joined and (run.semantics.strict or at in missed)
    ]
    act, because = "enter", f"to enter `{operation.label(first.entry)}`"
    if any(_was_there(run, first, rank) for rank in absent[:SHOWN]):
        act, because = "make", f"to make operation {first.match.position + 1} on {group.name}"
    return Need(waiters=tuple(posts), peers=tuple(absent), because=because, act=act)


def _was_there(run: Run, post: CollectivePost, rank: int) -> bool:
    """Whether a rank took the step in which `post` waits, as an earlier operation on the group."""
    match, call = post.match, post.call
    return any(
        (each.step.index, each.iteration) == (call.step.index, call.iteration)
        for each in run.matches.calls(match.group.key, rank)
    )


def _make_need(run: Run, post: Post) -> Need:
    if isinstance(post, MessagePost):
        act = "receive" if post.message.sends else "send"
        because = f"to {act}{tell_group(run, post)}"
        if post.message.peer is not None:
            return Need(waiters=(post,), peers=(post.message.peer,), because=because, act=act)
        others = tuple(rank for rank in post.group.ranks if rank != post.rank)
        return Need(waiters=(post,), peers=others, because=because, act=act, anyone=True)
    if isinstance(post, FunctionCall):
        because = f"to run `{post.function.name}`"
        return Need(waiters=(post,), peers=(post.to,), because=because, act="run")
    assert isinstance(post, CreationPost)
    if run.semantics.on(post.group).splits:
        split = run.creations.find_splitting(post)
        absent = tuple(peer for peer in range(len(run.ranks)) if peer not in split)
        return Need(
            waiters=(post,), peers=absent, because="to split the world as well", act="split"
        )
    here = run.creations.find_members(post)
    absent = tuple(
        peer
        for peer in post.group.ranks
        if peer not in here or here[peer].group.ranks != post.group.ranks
    )
    return Need(waiters=(post,), peers=absent, because="to create the same group", act="create")


class Futures:
    """What each rank would still do; looking ahead uses up the ranks' programs.

    A hang has a cause only if one knows whether the peer ever comes. Two programs stop alike, with
    rank 0 blocked in a barrier that rank 1 has not entered:

        rank 1   recv from 0, barrier     `late`: it would come, were it freed; blame the circle
        rank 1   recv from 0              `never`: it has one barrier less, `missing_participant`

    So the program of each blocked rank is walked on from where it stands, without its values: a
    message that never came leaves its buffer as it was. The look ends where the program does, after
    `HORIZON` calls, or where an expression cannot be computed. Once it was taken, no rank can go
    on: the walkers of the run are spent.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._calls: dict[int, list[Call]] = {}
        #: rank -> the series of the groups that it would create, in order
        self._coming: dict[int, list[Series]] = {}

    def of(self, rank: int) -> list[Call]:
        """Return the calls that the rank has yet to begin, those that it has enqueued first."""
        enqueued = self._run.streams.find_enqueued(rank)
        return [*enqueued, *self.find_later(rank)] if enqueued else self.find_later(rank)

    def find_later(self, rank: int) -> list[Call]:
        """Return the calls after the one in which the rank stands."""
        if rank not in self._calls:
            self._calls[rank] = self._look(self._run.ranks[rank])
        return self._calls[rank]

    def _look(self, state: RankState) -> list[Call]:
        found: list[Call] = []
        created: Counter[Series] = Counter()
        if state.state != "blocked":
            return found
        standing = self._run.creating.get(state.rank)
        if standing is not None and state.rank in standing.group.ranks:
            state.process.alive.add(standing.group.key)
        try:
            for call in islice(state.walker, HORIZON):
                found.append(call)
                if isinstance(call.operation, Local):
                    if call.operation.ends(call.entry):
                        break
                    call.operation.run(state.process, call.entry)
                elif isinstance(call.operation, Compound):
                    if "result" in call.entry.arguments:  # what it brings is not known
                        call.operation.run(state.process, call.entry)
                elif isinstance(call.operation, GroupCreation):
                    self._join(state, call, created)
                state.process.keep(call)
        except (ScenarioError, RefusedError, ProgramError):
            pass  # what lies behind needs values that never come, or lies behind an exception
        return found

    def _join(self, state: RankState, call: Call, created: Counter[Series]) -> None:
        """Let the rank know the group that it would create; a key where others wait with it."""
        assert isinstance(call.operation, GroupCreation)
        creations = self._run.creations
        group = call.operation.group(call.entry, self._run.plan.scenario.timeout_s)
        counts = self._run.semantics.on(group).counts
        local = call.operation.local(call.entry)
        coming = sum(created[each] for each in created if not each[0] or state.rank in each[0])
        series = creations.series(group, state.process, counts, local=local, coming=coming)
        self._coming.setdefault(state.rank, []).append(series)
        ordinal = creations.ordinal(state.rank, series) + created[series]
        created[series] += 1
        key = creations.key(group, series, ordinal)
        state.process.join(group if key is None else replace(group, key=key))

    def brings(self, post: Post, peer: int) -> str:
        """Return `late` if the peer would come, `never`, or `other`: it would do something else.

        `beyond` where it does not in what is written of its program, which goes on beyond that.
        """
        if peer not in range(len(self._run.ranks)):
            return "never"
        found = self._brings(post, peer)
        if found == "never" and self._goes_on(peer) and not self._clashes(post, peer):
            return "beyond"
        return found

    def _goes_on(self, peer: int) -> bool:
        state = self._run.ranks[peer]
        return state.truncated and state.state in {"blocked", "finished"}

    def _clashes(self, post: Post, peer: int) -> bool:
        """Whether both ends of a message stand for each other, under two tags or on two groups.

        Neither moves before the other: what lies beyond does not matter.
        """
        return (
            isinstance(post, MessagePost)
            and any(
                isinstance(other, MessagePost)
                and other.done_s is None
                and other.message.sends != post.message.sends
                and other.message.peer == post.rank
                and post.message.peer == peer
                for work in self._run.ranks[peer].waiting
                for other in work.posts
            )
            and post.work in self._run.ranks[post.rank].waiting
        )

    def _brings(self, post: Post, peer: int) -> str:
        if isinstance(post, CollectivePost):
            return self._joins(post, peer)
        if isinstance(post, MessagePost):
            wanted = [message for call in self.of(peer) for message in messages_of(call)]
            tags = self._run.semantics.on(post.group).tags
            late = any(_answers(post, message, tags=tags) for message in wanted)
            return "late" if late else "never"
        if isinstance(post, FunctionCall):
            return "never"  # every rank serves for as long as its process lives
        assert isinstance(post, CreationPost)
        return self._creates(post, peer)

    def _joins(self, post: CollectivePost, peer: int) -> str:
        key = post.match.group.key
        ahead = post.match.position - self._run.matches.position(key, peer)
        if ahead < 0:
            return "other"
        coming = [
            call
            for call in self.of(peer)
            if isinstance(call.operation, Collective) and call.entry.group.key == key
        ]
        if ahead >= len(coming):
            return "never"
        return "late" if coming[ahead].operation is post.operation else "other"

    def _creates(self, post: CreationPost, peer: int) -> str:
        creations = self._run.creations
        if peer in creations.find_members(post):
            return "other"
        self.find_later(peer)
        coming = self._coming.get(peer, []).count(post.series)
        ahead = post.ordinal - creations.ordinal(peer, post.series)
        return "late" if ahead < coming else "never"


class StoppedRun(Struct, frozen=True, kw_only=True):
    """A run that has come to rest, as diagnoses look at it; `found` is what is found so far.

    Each module of :mod:`torch_scenarios.reference.diagnoses` gets one, and returns symptoms. They
    are asked in the order of `FINDERS`. `found` has what the walk and the earlier ones found, so
    that a later one can keep silent: what follows from a mismatch is not a second mistake.
    """

    run: Run
    futures: Futures
    needs: list[Need]
    found: list[Symptom]


def messages_of(call: Call) -> tuple[Message, ...]:
    """Return the messages that a call would post."""
    operation = call.operation
    if not isinstance(operation, PointToPoint) or operation.refuse(call.entry) is not None:
        return ()
    return operation.messages(call.entry)


def _answers(post: MessagePost, message: Message, *, tags: bool) -> bool:
    return (
        message.sends != post.message.sends
        and (not tags or message.tag == post.message.tag)
        and (message.peer == post.rank or (message.peer is None and post.message.sends))
    )


def tell_group(run: Run, post: MessagePost) -> str:
    """Return ` on GROUP` where a message is not on the world, or others are on other groups."""
    several_groups = len(run.mailbox.groups) > 1
    return f" on {post.group.name}" if post.group.key != WORLD or several_groups else ""


def is_gone(run: Run, rank: int) -> bool:
    """Whether a rank ended by a fault or an exception: then its absence is not the fault."""
    if not 0 <= rank < len(run.ranks):
        return False
    state = run.ranks[rank]
    return state.state in {"raised", "died"} or bool(state.broken)


def was_refused(run: Run, rank: int, kind: type[object]) -> bool:
    """Whether a rank made a call of that kind, and it raised as the scenario expects.

    The rank went on then. It misses the others because the scenario asks for that.
    """
    if not 0 <= rank < len(run.ranks):
        return False
    expected = {
        step.index
        for step in steps_of(run.plan.scenario.steps)
        if isinstance(step.operation, kind) and step.expect is not None and step.expect.raises
    }
    # of ranks that were taken together, each event that is looked at has to be made
    return bool(expected) and any(
        event.state == "raised" and event.index in expected for event in run.ranks[rank].events
    )


# A scenario that was recorded may be cut: its first 1,000 steps are written, the program went on.
#
#     rank 0   barrier, barrier              blocked in the second
#     rank 1   barrier, (cut)                at the end of what is written
#
# Rank 1 has not ended, it only is not known what it does next, and most likely that is the second
# barrier. To call it a deadlock would be wrong for each recorded program that was cut. What such a
# rank may free is therefore not blocked, and neither is what that one may free in turn: the least
# set that is closed under it.
def find_waiting_beyond(run: Run, futures: Futures, needs: list[Need]) -> frozenset[int]:
    """Return the blocked ranks that what lies beyond a truncated program may free.

    Each of their needs can be met: by a rank that has come to the end of what is written, or that
    such a rank may free.
    """
    free = {s.rank for s in run.ranks if s.truncated and s.state == "finished"}
    if not free:
        return frozenset()
    wanted: dict[int, list[Need]] = {}
    for need in needs:
        for post in need.waiters:
            wanted.setdefault(post.rank, []).append(need)
    found: set[int] = set()
    while True:
        more = {
            rank
            for rank, mine in wanted.items()
            if rank not in found and all(_may_be_met(futures, need, free) for need in mine)
        }
        if not more:
            return frozenset(found)
        found |= more
        free |= more


def _may_be_met(futures: Futures, need: Need, free: set[int]) -> bool:
    post = need.waiters[0]
    met = (peer in free and futures.brings(post, peer) in {"late", "beyond"} for peer in need.peers)
    return any(met) if need.anyone else all(met)
