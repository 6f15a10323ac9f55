"""What a known backend makes of a program, and why."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.errors import ScenarioError, sentence_of
from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.expressions.values import Constant
from torch_scenarios.limits import BoundError, Limits, pause_collector
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.process import Call
from torch_scenarios.model.scenario import Step, steps_of
from torch_scenarios.model.trace import Trace
from torch_scenarios.model.traits import TRAITS, Traits, traits_of, variant_of, variants
from torch_scenarios.model.versions import find_torch_version
from torch_scenarios.operations.base import (
    Collective,
    Entry,
    Group,
    GroupCreation,
    Operation,
    PointToPoint,
)
from torch_scenarios.reference.diagnoses import diagnose
from torch_scenarios.reference.matching import CreationPost, MessagePost, Work
from torch_scenarios.reference.schedules import (
    ExaminedRun,
    are_same_values,
    may_stand,
    rank_trace,
    rest,
)
from torch_scenarios.reference.semantics import Buffer, Semantics, find_semantics
from torch_scenarios.reference.symptoms import list_ranks, odd_first, place
from torch_scenarios.reference.waits import messages_of
from torch_scenarios.vocabulary import OUTCOMES

# -------------------------------------------------------------------------------------------------
# Which fact of a backend makes a program come to something else there, in phrases.

#: phrases of one kind: more would say the same of other steps
TOLD = 2

GARBLED = (
    "two ranks whose first calls to each other are not a pair of a send and its receive take their "
    "offers to connect for answers"
)


def tell_facts(
    main: ExaminedRun, others: Sequence[ExaminedRun], hosts: Hosts | None
) -> tuple[str, ...]:
    """Return the facts that show in how a program goes: what moves it, or what holds it up."""
    found = [
        each
        for tell in (_split, _tell_counted, _tell_reused_names, _tell_crossed)
        for each in list(tell(main))[:TOLD]
    ]
    if hosts and hosts.garbled:
        found.append(GARBLED)
    if main.outcome == "completes":
        found += list(_tell_early(main))[:TOLD]
    else:
        found += [*list(_tell_connections(hosts))[:TOLD], *list(_tell_unbegun(main))[:TOLD]]
    for other in others:
        if other.outcome != main.outcome:
            found += list(_tell_freedom(main, other))[:TOLD]
    return tuple(dict.fromkeys(found))


def _split(main: ExaminedRun) -> Iterator[str]:
    simulation = main.simulation
    if not simulation.semantics.splits:
        return
    for post in simulation.creating.values():
        yield (
            f"`{post.call.label}`{place(post)} on rank {post.rank} is split off the world's "
            "communicator, which every rank of the world has to call, member or not"
        )
    for here in simulation.creations.all():
        if len({creating.group.ranks for creating in here.values()}) > 1:
            yield (
                "ranks that name other members of a new group are each split off the world's "
                "communicator by themselves"
            )


_GROUPS = "groups that each is in"


def _tell_counted(main: ExaminedRun) -> Iterator[str]:
    """Tell of groups that their members look for under different names."""
    simulation = main.simulation
    together: dict[tuple[int, ...], list[CreationPost]] = defaultdict(list)
    if simulation.semantics.counts:
        for post in simulation.creating.values():
            together[post.series[0]].append(post)
    for posts in together.values():
        counts: dict[str, list[int]] = defaultdict(list)
        for post in sorted(posts, key=lambda post: post.rank):
            counts[str(post.series[1])].append(post.rank)
        if len(counts) > 1:
            calls = simulation.semantics.counts == "calls"
            parts = odd_first(counts, partial(_has_made if calls else _count_groups, counts))
            sentence = sentence_of(parts)
            number = "calls that each has made to create groups" if calls else _GROUPS
            yield (
                f"the members of `{posts[0].call.label}`{place(posts[0])} look for each other "
                f"under the number of {number}: {sentence}"
            )


def _has_made(counts: Mapping[str, Sequence[int]], count: str) -> tuple[str, None]:
    """Say how many groups some ranks have named before."""
    verb = "has" if len(counts[count]) == 1 else "have each"
    return f"{verb} made {count}", None


def _count_groups(counts: Mapping[str, Sequence[int]], count: str) -> tuple[str, None]:
    """Say how many groups each of some ranks is in, the world included."""
    verb = "is" if len(counts[count]) == 1 else "are each"
    many = f"{verb} in {count} groups"
    return many if count != "1" else f"{verb} in the world alone", None


def _tell_reused_names(main: ExaminedRun) -> Iterator[str]:
    """Tell of groups that only their members create, under a name that one of them has used."""
    for call, ranks in _sort_by_step(post.call for post in main.simulation.creations.reused):
        yield (
            f"{call} takes the name of a group that {list_ranks(ranks)} made with the same members "
            "and destroyed: it may find their old addresses"
        )
    for call, ranks in _sort_by_step(main.simulation.creations.refused):
        yield (
            f"{call} takes the name of a group that {list_ranks(ranks)} made with the same members "
            "before another was destroyed: no rank can be in two groups of one name"
        )


def _sort_by_step(calls: Iterable[Call]) -> list[tuple[str, list[int]]]:
    """Return each call in words, with the ranks that make it."""
    found: dict[str, set[int]] = defaultdict(set)
    for call in calls:
        mark = f" ({call.step.mark.short})" if call.step.mark else ""
        found[f"`{call.label}`{mark}"].add(call.entry.rank)
    return [(sentence, sorted(ranks)) for sentence, ranks in found.items()]


def _tell_connections(hosts: Hosts | None) -> Iterator[str]:
    for _, source, target in hosts.missing if hosts else ():
        yield (
            f"the first message from rank {source} to rank {target} waits on the host for its "
            "receive, of any size"
        )


def _tell_unbegun(main: ExaminedRun) -> Iterator[str]:
    """Tell of what never began: one for each call that it is behind."""
    firsts: set[tuple[int, int]] = set()
    for work, first in main.simulation.streams.find_delayed():
        if not first.done and (first.rank, first.number) not in firsts:
            firsts.add((first.rank, first.number))
            yield (
                f"`{work.call.label}`{place(work)} of rank {work.rank} begins only once "
                f"`{first.call.label}`{place(first)} is done: calls of one group run in the order "
                "of one stream"
            )


def _tell_crossed(main: ExaminedRun) -> Iterator[str]:
    for send, receive in main.simulation.crossed:
        yield (
            f"`{receive.call.label}`{place(receive)} with tag {receive.message.tag} takes what "
            f"rank {send.rank} sends with tag {send.message.tag}: tags are ignored, messages of "
            "two ranks match in order"
        )


def _tell_early(main: ExaminedRun) -> Iterator[str]:
    buffer = main.simulation.semantics.buffer
    for send in sorted(main.simulation.early, key=lambda send: send.call.asynchronous):
        yield f"`{send.call.label}`{place(send)} leaves rank {send.rank} early{_bounds(buffer)}"


def _bounds(buffer: Buffer | None) -> str:
    if buffer is None or buffer.size_bytes is None:
        return ""
    return f": sends of up to {buffer.size_bytes} bytes do"


def _tell_freedom(main: ExaminedRun, other: ExaminedRun) -> Iterator[str]:
    """Tell of what a backend may do and need not."""
    here, there = main.simulation, other.simulation
    if there.semantics.order != here.semantics.order:
        for work, first in there.streams.find_delayed():
            if not first.done:
                yield _tell_launch(work, first)
        return
    taken = {_instance(post) for post in here.early}
    for send in there.early:
        if _instance(send) not in taken:
            yield (
                f"`{send.call.label}`{place(send)} of rank {send.rank} may leave early, and need "
                f"not{_bounds(here.semantics.buffer)} for sure"
            )


def _tell_launch(work: Work, first: Work) -> str:
    return (
        f"rank {work.rank} launches `{work.call.label}`{place(work)} after "
        f"`{first.call.label}`{place(first)}, others the other way round: a device may run the "
        "calls of all groups in the order in which its host launched them"
    )


def _instance(post: MessagePost) -> tuple[int, int, tuple[int, ...]]:
    return post.rank, post.call.step.index, post.call.iteration


# -------------------------------------------------------------------------------------------------
# Which ranks stand on the host for good: the first message between two ranks connects them.
#
# Where a backend connects ranks late, a call that sends to a rank for the first time, or receives
# from one, returns to the host only once that rank's host has made the opposite call, however
# small the message is (NCCL, `ncclTransportP2pSetup`). Beside that hosts wait in a barrier;
# otherwise they run ahead of their devices.

#: a connection: the group, the rank that sends, the rank that receives
Connection: TypeAlias = tuple[str, int, int]

#: where hosts meet: in a connection, or all members of a group in the n-th barrier
Place: TypeAlias = Connection | tuple[str, int]


class Hosts(Struct, frozen=True, kw_only=True):
    """Where hosts stand: rank -> the number of its work, and the connections that none completes.

    `garbled`: two ranks half a ring apart whose calls are not each other's counterpart (both send
    first; a batch meets a plain receive) take each other's offer for an answer, or one of another
    length. The outcome is not defined.
    """

    standing: dict[int, int]
    missing: tuple[Connection, ...]
    garbled: bool


# Why a small message may hang where a buffer would take it.
#
#     rank 0   isend x to 1 (the first between the two)      its host waits for rank 1's host
#     rank 1   all_reduce on another group, then irecv       which waits in a call of rank 0
#
# On the stream nothing is wrong: the send is 4 bytes, and a buffer takes it. But the ring buffer
# has to be set up between the two devices first, and for that both hosts have to be in a call that
# uses the connection. So a forecast looks at hosts by themselves: which calls return to them at
# once, and which only once the other end was called.
class StartedCall(Struct, frozen=True, kw_only=True):
    """A call that starts work, for hosts: the ranks that it sends to (True) or receives from.

    Some backends connect two ranks when these first talk, and a host waits in that call for its
    peer to do the same (`Traits.connects_late`). So of each call only its ends matter here, and not
    what it moves.

        rank 0   isend to 1      messages ((True, 1),): its host waits for the first call of rank 1
        rank 1   isend to 0      with rank 0; that call uses the same connection, so that they meet
    """

    operation: Operation
    group: Group
    messages: tuple[tuple[bool, int], ...] = ()
    #: the root's world rank
    root: int | None = None

    @classmethod
    def of(
        cls, operation: Operation, entry: Entry, messages: Iterable[tuple[bool, int]]
    ) -> StartedCall:
        """Return a rank's call; an operation that has a root says which it is."""
        root = None
        if isinstance(operation, Collective) and operation.rooted is not None:
            root = entry.group.ranks[operation.root(entry)]
        return cls(operation=operation, group=entry.group, messages=tuple(messages), root=root)


class JointRun(Protocol):
    """What all ranks did together, to the end.

    A forecast of 1,024 ranks need not walk them again: where each call was done before its rank's
    next one, an order of streams has nothing to change, and the semantics' own trace is the
    forecast.
    """

    def is_untouched_by(self, traits: Traits, /) -> bool:
        """Whether a backend makes of it just what the semantics say."""

    def list_starts(self, rank: int, /) -> Iterator[StartedCall]:
        """Yield the calls of a rank that start work, in order."""


def hosts_of(run: ExaminedRun, traits: Traits) -> Hosts:
    """Return where the hosts of a run stand that connect late."""
    ranks = range(len(run.simulation.ranks))
    return _Connecting(
        {rank: _list_starts(run, rank) for rank in ranks}, run.simulation.semantics, traits
    ).hosts()


def _list_starts(run: ExaminedRun, rank: int) -> Iterator[StartedCall]:
    """Yield the calls that a rank made, and those that it comes to."""
    shapes = (Collective, PointToPoint, GroupCreation)
    works = [work.call for work in run.simulation.ranks[rank].works]
    coming = (call for call in run.futures.find_later(rank) if isinstance(call.operation, shapes))
    for call in (*works, *coming):
        assert call.operation is not None
        ends = ((each.sends, each.peer) for each in messages_of(call) if each.peer is not None)
        yield StartedCall.of(call.operation, call.entry, ends)


class _Connecting:
    """The hosts of all ranks, each before the first call whose connections are not complete."""

    def __init__(
        self, calls: Mapping[int, Iterator[StartedCall]], semantics: Semantics, traits: Traits
    ) -> None:
        self._semantics = semantics
        self._traits = traits
        self._groups: dict[str, Group] = {}
        self._coming = {rank: self._places(rank, made) for rank, made in calls.items()}
        #: the call before which a host is: its number, and where it must meet others
        self._calls = {rank: next(coming, None) for rank, coming in self._coming.items()}
        self._arrived: dict[Place, set[int]] = defaultdict(set)
        #: where all hosts that meet there have gone on
        self._passed: set[Place] = set()
        #: what a rank connected with one half a ring away, call by call
        self._offers: dict[tuple[str, int, int], list[set[Connection]]] = defaultdict(list)

    def _places(self, rank: int, calls: Iterator[StartedCall]) -> Iterator[tuple[int, set[Place]]]:
        """Yield the rank's works by number, each with where its host must meet others."""
        joined: Counter[str] = Counter()
        for number, call in enumerate(calls):
            group = call.group
            if self._semantics.on(group) is not self._semantics:
                continue
            self._groups[group.key] = group
            needed: set[Place] = set(self._connections(rank, call))
            if call.operation.name in self._traits.join_hosts:
                joined[group.key] += 1
                needed.add((group.key, joined[group.key]))
            if needed:
                yield number, needed

    def _connections(self, rank: int, call: StartedCall) -> Iterator[Connection]:
        """Yield the connections that a call uses, of which either end makes its own half."""
        operation, group, root = call.operation, call.group, call.root
        for sends, peer in call.messages:
            yield group.key, *((rank, peer) if sends else (peer, rank))
        if not isinstance(operation, Collective) or operation.name not in self._traits.by_messages:
            return
        for peer in group.ranks:
            if peer != rank and (root is None or root in {rank, peer}):
                if root is None or (operation.rooted == "src") == (root == rank):
                    yield group.key, rank, peer
                if root is None or (operation.rooted == "src") == (root == peer):
                    yield group.key, peer, rank

    def hosts(self) -> Hosts:
        """Let every host go as far as it gets."""
        ready = deque(self._calls)
        while ready:
            rank = ready.popleft()
            call = self._calls[rank]
            if call is None:
                continue
            self._offer(rank, call[1])
            for point in call[1]:
                ready += self._arrive(rank, point)
            for leaving in self._find_leaving(rank):
                through = self._calls[leaving]
                assert through is not None
                self._passed |= through[1]
                self._calls[leaving] = next(self._coming[leaving], None)
                ready.append(leaving)
        return self._bring_to_rest()

    def _find_leaving(self, rank: int) -> list[int]:
        """Return the ranks whose hosts leave their calls together with one; none where it stays.

        A call connects all that it needs at once. A host that waits in one of its connections lets
        none of its other peers go either (seen with NCCL 2.28.9).
        """
        leaving, looked = [rank], set(self._passed)
        known = {rank}
        for each in leaving:
            call = self._calls[each]
            assert call is not None
            for point in call[1] - looked:
                looked.add(point)
                peers = self._find_peers(point)
                if len(self._arrived[point]) < len(peers):
                    return []
                here = [peer for peer in peers if peer not in known and self._is_at(peer, point)]
                known.update(here)
                leaving += here
        return leaving

    def _is_at(self, rank: int, point: Place) -> bool:
        """Whether a host is in a call that meets others there."""
        call = self._calls[rank]
        return call is not None and point in call[1]

    def _offer(self, rank: int, needed: set[Place]) -> None:
        """Note what a call connects for the first time with the rank half a ring away.

        Ranks tell each other of a connection by their distance; half way round, the rank that one
        sends to is the one that it receives from, and both halves go in one message.
        """
        offered: dict[tuple[str, int, int], set[Connection]] = defaultdict(set)
        for point in needed:
            if len(point) == 2 or rank in self._arrived[point]:
                continue
            key, source, target = point
            group = self._groups[key]
            distance = group.group_rank(target) - group.group_rank(source)
            if 2 * distance % group.size == 0:
                offered[key, rank, target if source == rank else source].add(point)
        for pair, connections in offered.items():
            self._offers[pair].append(connections)

    def _arrive(self, rank: int, place: Place) -> list[int]:
        """Let a host come to a place; returns the others there if it was the last to come."""
        here = self._arrived[place]
        if rank in here:
            return []
        here.add(rank)
        peers = self._find_peers(place)
        return [other for other in peers if other != rank] if len(here) == len(peers) else []

    def _find_peers(self, place: Place) -> tuple[int, ...]:
        """Return the ranks whose hosts meet there."""
        key, *ends = place
        return tuple(ends) if len(ends) > 1 else self._groups[key].ranks

    def _bring_to_rest(self) -> Hosts:
        calls = {rank: call for rank, call in self._calls.items() if call is not None}
        standing = {rank: number for rank, (number, _) in calls.items()}
        places = {point for _, needed in calls.values() for point in needed if len(point) > 2}
        missing = {
            point for point in places if len(self._arrived[point]) < len(self._find_peers(point))
        }
        return Hosts(
            standing=standing,
            missing=tuple(sorted(missing)),
            garbled=any(map(self._is_garbled, self._offers)),
        )

    def _is_garbled(self, pair: tuple[str, int, int]) -> bool:
        """Whether what a rank offers another is not what that one offers it."""
        key, rank, peer = pair
        theirs = self._offers.get((key, peer, rank), [])
        return any(one != other for one, other in zip(self._offers[pair], theirs, strict=False))


# -------------------------------------------------------------------------------------------------
# What one backend makes of a program: it is read once more, with the facts of the backend.
#
# What is right does not depend on a backend, and nothing here makes a wrong program right. A
# program that relies on what the semantics leave open, or that a backend's streams bring to a
# halt, comes to something else there; the forecast says to what, and because of which fact.


#: the version of torch that is meant where none is installed: what a new installation gets
NEWEST = "2.14"


class Forecasts(Mapping[str, Trace]):
    """The forecasts of every known backend on which a program comes to something else.

    One is made when it is first asked for: most programs are never run there. It is a mapping, in
    which a backend is missing on which the program ends as the semantics say:

        rank 0   isend x to 1, irecv y from 1, wait both       gloo: missing, it completes there too
        rank 1   isend x to 0, irecv y from 0, wait both       nccl: a deadlock of both ranks

    A forecast never says what is right (decision 25): that NCCL hangs is known of NCCL, and the
    program's own prediction stays that it completes.
    """

    def __init__(
        self,
        plan: Plan,
        predicted: Trace,
        limits: Limits,
        together: JointRun | None = None,
    ) -> None:
        """Compute nothing yet; `together` is what is known where ranks were taken together."""
        self._asked = (plan, predicted, limits)
        self._together = together
        self._made: dict[str, Trace | None] = {}
        #: whether the program has what versions of torch name in their own way
        self._counted = any(map(_is_local, steps_of(plan.scenario.steps)))

    def __getitem__(self, asked: str) -> Trace:
        """Return the forecast of a backend; KeyError where it comes to the same."""
        name = self._name(asked)
        if name not in self._made:
            plan, predicted, limits = self._asked
            together = self._together
            untouched = together is not None and together.is_untouched_by(traits_of(name))
            self._made[name] = (
                None if untouched else forecast(plan, predicted, name, limits, together)
            )
        found = self._made[name]
        if found is None:
            raise KeyError(asked)
        return found

    def _name(self, asked: str) -> str:
        """Return a backend's name with versions of torch only where these make a difference."""
        backend = asked.split(" torch", maxsplit=1)[0]
        if not self._counted:
            return backend
        return asked if asked != backend else variant_of(backend, find_torch_version() or NEWEST)

    def __iter__(self) -> Iterator[str]:
        """Yield the backends on which it comes to something else."""
        return (backend for backend in sorted(TRAITS) if self._has(backend))

    def _has(self, backend: str) -> bool:
        try:
            return self[backend] is not None
        except KeyError:
            return False

    def __len__(self) -> int:
        """Return on how many backends it comes to something else."""
        return sum(1 for _ in self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what was asked for alone."""
        made = {name: trace for name, trace in self._made.items() if trace is not None}
        known = (*TRAITS, *made, *(each for name in TRAITS for each in variants(name)))
        return dict, ({each: made[name] for each in known if (name := self._name(each)) in made},)


def forecast(
    plan: Plan,
    predicted: Trace,
    name: str,
    limits: Limits,
    together: JointRun | None = None,
) -> Trace | None:
    """Return what a backend makes of a program; None where it is what is predicted anyway.

    `name` is the backend's, with versions of torch where these make a difference. Of a program that
    all ranks took `together` the calls are known before it is walked: whose host stands then need
    not be found by walking to the end. Nothing is known of programs that raise, die, go on beyond
    what is written, or receive from anyone where a backend cannot.
    """
    traits = traits_of(name)
    if plan.scenario.truncated or predicted.outcome not in {"completes", "deadlock"}:
        return None
    return (
        _forecast(plan, predicted, name, limits, together) if _is_concerned(plan, traits) else None
    )


@pause_collector()
def _forecast(
    plan: Plan, predicted: Trace, name: str, limits: Limits, together: JointRun | None
) -> Trace | None:
    """Return what a backend makes of a program that it may take in its own way.

    The walk is run under the semantics of that backend (buffers, streams, tags), and once more for
    each way that it may take and need not. Where hosts connect only when a group is first used, a
    rank may be held in its first call: that is found from a first run, and made part of a second
    one.

    None where it comes to the same as everywhere, and where nothing is known of what the backend
    does.
    """
    traits, backend = traits_of(name), name.split(" torch", maxsplit=1)[0]
    sure = find_semantics(backend, traits)
    arrays = numpy_arrays(limits)
    try:
        hosts = None
        if traits.connects_late and together is not None:
            made = {rank: together.list_starts(rank) for rank in range(plan.world_size)}
            hosts = _Connecting(made, sure, traits).hosts()
            sure = replace(sure, standing=hosts.standing)
        main = rest(plan, arrays, sure, limits=limits)
        if main.simulation.mailbox.from_anyone and not traits.any_source:
            return None
        if traits.connects_late and hosts is None:
            hosts = hosts_of(main, traits)
            if hosts.standing:
                sure = replace(sure, standing=hosts.standing)
                main.simulation.dissolve()
                main = rest(plan, arrays, sure, limits=limits)
        if main.outcome != "completes" and traits.splits_world and main.disputes():
            return None  # of a group that is smaller than its ranks believe nothing is known
        others = _vary_semantics(plan, main, traits)
        runs = [rest(plan, arrays, each, limits=limits) for each in others]
    except BoundError:
        raise  # a bound ends the case
    except ScenarioError:
        return None  # a value that its ranks never hold there
    found = _trace(predicted, main, runs, hosts)
    for run in (main, *runs):
        run.simulation.dissolve()
    return None if _is_redundant(predicted, found) else replace(found, backend=backend)


@pause_collector()
def buffer_sends(plan: Plan, predicted: Trace, limits: Limits) -> Trace:
    """Return what a backend makes of a program that buffers all that is sent, whatever its size.

    Raises ScenarioError where a value cannot be computed, or a bound is exceeded.
    """
    main = rest(plan, numpy_arrays(limits), Semantics(buffer=Buffer()), limits=limits)
    found = _trace(predicted, main, [], None)
    main.simulation.dissolve()
    return found


def _vary_semantics(plan: Plan, main: ExaminedRun, traits: Traits) -> Iterator[Semantics]:
    """Yield what else a backend may do, and need not.

    Messages up to the size that can be held at all may leave early, which blocks no rank; the
    calls of all groups may wait for one another, because a device launches them in the order in
    which the host did; and who makes a group under a name that it used before may find those who
    made that one.
    """
    sure = main.simulation.semantics
    if traits.held_bytes and main.outcome == "deadlock":
        yield replace(sure, buffer=Buffer(size_bytes=traits.held_bytes))
    if traits.enqueues and _has_several_groups(plan):
        yield replace(sure, order="rank")
    if main.simulation.creations.reused:
        yield replace(sure, found=True)


def _is_concerned(plan: Plan, traits: Traits) -> bool:
    """Whether the program has anything that the backend may take in its own way.

    Messages, new groups, and calls of several groups that run at once; collectives that ranks wait
    for one by one are the same everywhere.
    """
    if traits.may_show_anywhere():
        return True
    plain = not (traits.enqueues or traits.early_bytes or traits.held_bytes or not traits.tags)
    if plain and not traits.counts:
        return False
    steps = steps_of(plan.scenario.steps)
    if traits.counts and any(map(_is_local, steps)):
        return True
    if plain:
        return False
    if any(isinstance(step.operation, PointToPoint) for step in steps):
        return True
    if traits.splits_world and any(isinstance(step.operation, GroupCreation) for step in steps):
        return True
    return _has_several_groups(plan) and any(_asynchronous(step) for step in steps)


def _has_several_groups(plan: Plan) -> bool:
    steps = steps_of(plan.scenario.steps)
    return len(plan.names) > 1 or any(isinstance(step.operation, GroupCreation) for step in steps)


def _is_local(step: Step) -> bool:
    """Whether a step may create a group that only its members create."""
    local = _may_be_true(step, "use_local_synchronization")
    return isinstance(step.operation, GroupCreation) and local


def _asynchronous(step: Step) -> bool:
    stated = _may_be_true(step, "async_op")
    return step.operation is not None and (step.operation.asynchronous or stated)


def _may_be_true(step: Step, name: str) -> bool:
    """Whether an argument is true, or computed."""
    stated = step.arguments.get(name)
    return stated is not None and not (isinstance(stated, Constant) and not stated.value)


def _trace(
    predicted: Trace, main: ExaminedRun, others: list[ExaminedRun], hosts: Hosts | None
) -> Trace:
    """Return a forecast as a trace: its own outcome and waits, and the diagnoses of every backend.

    What the program does wrong everywhere stays wrong here. A diagnosis of this backend alone is
    optional: a file need not state it.
    """
    opened = set(main.simulation.opened) | {run.outcome for run in others}
    if main.simulation.creations.reused:
        opened |= {"deadlock", "error"}
    if hosts is not None and hosts.garbled:
        opened |= set(OUTCOMES)
        if predicted.outcome == "completes":
            # that the hosts of two ranks get over it is luck: with a third rank they stand for good
            opened.discard("completes")
    may_block = may_stand([main, *others], None)
    if any(may_block.values()):
        opened.add("deadlock")
    own = diagnose(main.findings, main.needs)
    known = {diagnosis.name for diagnosis in predicted.diagnoses}
    beside = tuple(
        replace(each, optional=True, finding=len(predicted.diagnoses) + each.finding)
        for each in own
        if each.name not in known
    )
    return Trace(
        backend="reference",
        outcome=main.outcome,
        open=tuple(sorted(opened - {main.outcome})),
        ranks=tuple(
            rank_trace(
                state.rank,
                [main, *others],
                state.events,
                tuple(sorted({*may_block.get(state.rank, ()), *mine.may_block})),
            )
            for state, mine in zip(main.simulation.ranks, predicted.ranks, strict=True)
        ),
        diagnoses=(*predicted.diagnoses, *beside),
        waits=main.waits,
        duration_s=main.duration_s,
        warnings=predicted.warnings,
        notes=predicted.notes,
        because=tell_facts(main, others, hosts),
    )


def _is_redundant(predicted: Trace, made: Trace) -> bool:
    """Whether a forecast says nothing that the prediction does not."""
    if (made.outcome, set(made.open) <= set(predicted.open)) != (predicted.outcome, True):
        return False
    for mine, theirs in zip(predicted.ranks, made.ranks, strict=True):
        if mine.ending != theirs.ending or len(mine.events) != len(theirs.events):
            return False
        for event, other in zip(mine.events, theirs.events, strict=True):
            if event.state != other.state or event.writes.keys() != other.writes.keys():
                return False
            if not all(
                are_same_values(value, other.writes[name]) for name, value in event.writes.items()
            ):
                return False
    return True
