"""Receives from anyone: every order of arrival that can really happen, one after the other.

Messages to a named receiver meet as soon as both sides are there; a receive from anyone waits
until nothing else moves, and then has before it every message that could ever reach it. Taking
each in turn, depth first, visits one order of each class that differs in a matching (the
persistent sets of Vakkalanka, Gopalakrishnan and Kirby, ISP, CAV 2008). An order that comes to a
state which was gone through before ends there (:mod:`torch_scenarios.reference.snapshots`), and
messages that come to the same are one choice (:mod:`torch_scenarios.reference.choices`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from torch_scenarios.errors import Clause
from torch_scenarios.expressions.arrays import Arrays
from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.expressions.values import Constant, Expression, Undefined
from torch_scenarios.limits import Limits, account
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.scenario import steps_of
from torch_scenarios.model.trace import Event, Events, Orders, RankTrace, Trace, WaitEdge
from torch_scenarios.operations.base import Local, PointToPoint
from torch_scenarios.reference.buffers import RACED
from torch_scenarios.reference.choices import (
    Choice,
    MergedOptions,
    NamedReceive,
    Turn,
    TurnChoice,
    TurnPlace,
    find_named_receives,
    merge_options,
)
from torch_scenarios.reference.diagnoses import faults
from torch_scenarios.reference.matching import (
    CollectiveMatch,
    CollectivePost,
    FunctionCall,
    HistoryMissingError,
    MessagePost,
    Work,
)
from torch_scenarios.reference.semantics import Buffer, Semantics
from torch_scenarios.reference.snapshots import Place as SnapshotsPlace
from torch_scenarios.reference.snapshots import Reads, Snapshot, equal, snapshot_of
from torch_scenarios.reference.state import Place, RankState, Touched, frozen, measure, stands_at
from torch_scenarios.reference.symptoms import Symptom
from torch_scenarios.reference.waits import Futures, Need, find_waiting_beyond
from torch_scenarios.reference.walk import Simulation, StartState

# -------------------------------------------------------------------------------------------------
# Runs that have come to rest -> the trace of one rank.


def rank_trace(
    rank: int, runs: Sequence[ExaminedRun], events: Events, may_block: tuple[Place, ...] = ()
) -> RankTrace:
    """Return one rank's trace; it is blocked for sure only if no schedule lets it go on.

    The events are those of the first run. A rank that is blocked at one step in that run, and at
    another one in the next, is `possibly_blocked`: the trace must not state where.
    """
    state = runs[0].simulation.ranks[rank]
    ending = state.state
    if ending == "blocked":
        call = state.call
        assert call is not None
        places = {stands_at(run.simulation.ranks[rank]) for run in runs}
        sure = len(places) == 1 and not any(rank in run.beyond for run in runs)
        ending = "blocked" if sure else "possibly_blocked"
        stuck = Event(
            index=call.step.index,
            label=call.label,
            iteration=call.iteration,
            state=ending,
            start_s=state.clock_s,
        )
        events = events.copy()
        events.append(stuck)
    return RankTrace(
        rank=rank,
        initial=state.initial,
        events=events,
        ending=ending,
        died=state.died,
        may_block=may_block,
        numbers=state.process.read_numbers(),
        links=state.links(state.works),
    )


# -------------------------------------------------------------------------------------------------
# Schedules.

#: orders after which no more are looked for once two of them end differently
ENOUGH = 256

#: messages of one order that are named
SHOWN = 4


#: how often a run is made, the last times with what races were found to bring to other ranks
PASSES = 4

#: part of the work and of the bytes of a case after which no further schedule is tried
EXPLORING = 0.25

#: units of work of one message that a receive from anyone may take
OPTION_WORK = 10_000


class ExaminedRun(Struct, frozen=True, kw_only=True):
    """A run that has come to rest, with everything that is to be said of it.

    Of a run that was cut only what it did before is; `ends` is what its ranks hold in the end.

    At rest means that no rank can take a step: each has finished, ended or is blocked. A run in
    which a rank is blocked is a deadlock only if no rank died or raised; then the wait is a
    consequence, and the outcome is `crash` or `error`.
    """

    simulation: Simulation
    findings: tuple[Symptom, ...]
    needs: tuple[Need, ...]
    futures: Futures
    ends: Mapping[SnapshotsPlace, Any] = field(default_factory=dict)
    #: the blocked ranks that what lies beyond a truncated program may free
    beyond: frozenset[int] = frozenset()

    @property
    def outcome(self) -> str:
        """One of :data:`torch_scenarios.vocabulary.OUTCOMES`."""
        states = {s.state for s in self.simulation.ranks if s.rank not in self.beyond}
        if "died" in states:
            return "crash"
        if "raised" in states:
            return "error"
        return "deadlock" if "blocked" in states else "completes"

    @property
    def waits(self) -> tuple[WaitEdge, ...]:
        """The edges of the wait-for graph, as a trace has them."""
        return tuple(edge.wait() for need in self.needs for edge in need.edges())

    @property
    def duration_s(self) -> float:
        """When the last rank came to rest, on virtual time."""
        return max((state.clock_s for state in self.simulation.ranks), default=0.0)

    def synchronises(self) -> bool:
        """Whether ranks come to the same end where none leaves a collective before all are there.

        True where they do although each call waits for all that take part in it: no time passes, no
        message is received from anyone, every collective has its members, every message both sides.
        False where that is to be tried. What ranks did together before they went on by themselves
        counts for nothing: there each collective waited for all its members.
        """
        run = self.simulation
        timeless = not any(state.clock_s for state in run.ranks)
        if run.mailbox.from_anyone or run.creations.all() or not timeless:
            return False
        if not all(match.complete and not match.spoiled for match in run.matches.all()):
            return False
        left = {state.rank: deque(_entries(state)) for state in run.ranks}
        entered: Counter[CollectiveMatch | MessagePost] = Counter()
        waiting: dict[CollectiveMatch | MessagePost, list[int]] = {}
        ready = deque(left)
        while ready:
            rank = ready.popleft()
            while left[rank]:
                exchange, size, enters = left[rank][0]
                if enters:
                    entered[exchange] += 1
                elif entered[exchange] < size:
                    waiting.setdefault(exchange, []).append(rank)
                    break
                if enters and entered[exchange] == size:
                    ready.extend(waiting.pop(exchange, ()))
                left[rank].popleft()
        return not any(left.values())

    def disputes(self) -> bool:
        """Whether a rank may stand in the creation of a group on which ranks disagree, or after it.

        Which calls match there depends on how a backend names groups.
        """
        creations = self.simulation.creations
        return any(
            creations.is_disputed(creating.series, creating.ordinal)
            for here in creations.all()
            for creating in here.values()
        )


def rest(
    plan: Plan,
    arrays: Arrays,
    semantics: Semantics,
    *,
    limits: Limits,
    start: StartState | None = None,
) -> ExaminedRun:
    """Run the default order to its end. Raises ScenarioError where a value cannot be computed."""
    touched: frozenset[Touched] = frozenset()
    for _ in range(PASSES):
        simulation = Simulation(
            plan, arrays, semantics=semantics, limits=limits, start=start, touched=touched
        ).run()
        if simulation.touched <= touched:
            break
        touched |= simulation.touched
    return _come_to_rest(simulation)


def _come_to_rest(simulation: Simulation) -> ExaminedRun:
    futures = Futures(simulation)
    if simulation.cut:
        findings = tuple(simulation.findings)
        return ExaminedRun(simulation=simulation, findings=findings, needs=(), futures=futures)
    ends = _ends(simulation) if simulation.choices else {}
    found, needs = faults(simulation, futures)
    return ExaminedRun(
        simulation=simulation,
        findings=tuple(found),
        needs=tuple(needs),
        futures=futures,
        ends=ends,
        beyond=find_waiting_beyond(simulation, futures, needs),
    )


def explore(
    plan: Plan,
    arrays: Arrays,
    semantics: Semantics,
    *,
    limits: Limits,
    start: StartState | None = None,
) -> tuple[list[ExaminedRun], str | None]:
    """Return the runs of all orders, the default one first, and the bound that was hit, if any.

    An order that leads to a state which another was in before is `cut` there.
    """
    search = _Search(plan, arrays, semantics, limits, start=start)
    return search.runs, search.run()


class _After(Struct, kw_only=True):
    """What comes after a choice, in the orders that were gone through.

    `live` are the names whose values some order reads, `coming` the addresses to which messages are
    sent, with their senders, `named` the receives that name their sender, `left` the ranks that
    some order leaves without an end.
    """

    live: set[SnapshotsPlace] = field(default_factory=set)
    coming: set[tuple[TurnPlace, int]] = field(default_factory=set)
    named: set[NamedReceive] = field(default_factory=set)
    left: set[int] = field(default_factory=set)

    def add(self, other: _After) -> None:
        """Add what comes in further orders."""
        self.live |= other.live
        self.coming |= other.coming
        self.named |= other.named
        self.left |= other.left


class _Node(Struct, kw_only=True, eq=False):
    """A choice on the way of the current run: where it is, and what is left to try.

    `options` are left to be tried, `elsewhere` those at other receives: it does not matter when
    they are made, unless they bring a message of a new rank to this one. `here` are who may send
    to it now. `same` come to the same as those that are tried, as far as it is known.
    """

    number: int
    snapshot: Snapshot | None
    options: list[int]
    elsewhere: list[int]
    address: TurnPlace
    here: frozenset[int]
    same: MergedOptions | None = None
    after: _After = field(default_factory=_After)

    def another(self) -> bool:
        """Go on to the next option; False where none is left that need be tried."""
        self.options = self.options[1:]
        if not self.options and self.same is not None:
            if self.same.is_doubted(self.address, self.after.named, self.after.left):
                self.options = list(self.same.options)
            self.same = MergedOptions()
        if not self.options and any(
            address == self.address and sender not in self.here
            for address, sender in self.after.coming
        ):
            self.options, self.elsewhere = self.elsewhere, []
        return bool(self.options)


class _Known(Struct, frozen=True, kw_only=True, eq=False):
    """A state of which every continuation was seen."""

    snapshot: Snapshot
    after: _After


# What is tried, and what need not be.
#
# Each run goes to its end by itself; there is no copy of a state to go back to. The next order is
# the choices of the last one up to the last choice that has an option left, then that option, and
# then whatever comes first. That is depth first, at the price of taking the beginning again.
#
#     choices of three messages        run 1   a b c
#                                      run 2   a c b        the last choice with an option left
#                                      run 3   b a c        ...
#
# Three things keep it from n! runs:
#
# * **States.** After `a b` and after `b a` the ranks may be at the same steps, with the same values
#   in all that is read later. The second one ends there (`cut`): what comes after it was seen.
#   Which names are read later is known only once all orders behind a state were gone through
#   (`_After.live`).
# * **Addresses.** Of two receives from anyone on two ranks, the one may be decided first: the order
#   between them cannot show, unless the choice at the one brings a new sender to the other
#   (`_Node.elsewhere`). These are persistent sets.
# * **Equal messages.** What k senders send alike is one option (`choices.merge_options`), until an
#   order shows that tells the senders apart (`MergedOptions.is_doubted`).
#
# Where a bound is hit first, the trace says so in its `limits`. A race that was found is found;
# that none was found is then no proof.
class _Search:
    """Depth first through the choices of a program; no state is gone through twice.

    With `observed` only those orders are followed that a run may have taken.
    """

    def __init__(
        self,
        plan: Plan,
        arrays: Arrays,
        semantics: Semantics,
        limits: Limits,
        *,
        observed: Trace | None = None,
        start: StartState | None = None,
    ) -> None:
        self._start = start
        self.runs: list[ExaminedRun] = []
        self._asked = plan, arrays, semantics
        self._limits, self._observed = limits, observed
        chooses = _receives_from_anyone(plan) or plan.scenario.functions
        self._reads = Reads(plan) if chooses else None
        self._path: list[_Node] = []
        self._known: dict[Hashable, list[_Known]] = {}
        self._met: _Known | None = None
        #: whether two orders end differently
        self._apart = False
        #: what races bring to other ranks, as far as it is known, and how often that was looked for
        self._touched: frozenset[Touched] = frozenset()
        self._passes = 1

    def run(self) -> str | None:
        """Go through all orders; return the bound that was hit, if any.

        Orders other than the first take a part of the work and of the bytes of a case, and leave it
        the rest.
        """
        plan, arrays, semantics = self._asked
        schedule: tuple[int, ...] | None = ()
        while schedule is not None:
            bound = self._bound()
            if bound is not None:
                return bound
            self._met = None
            simulation = Simulation(
                plan,
                arrays,
                semantics=semantics,
                schedule=schedule,
                limits=self._limits,
                choosing=self._choose,
                reads=self._reads,
                start=self._start,
                touched=self._touched,
            ).run()
            if not simulation.touched <= self._touched and self._passes < PASSES:
                schedule = self._begin_again(simulation)
                continue
            run = _come_to_rest(simulation)
            seen = self._observed is not None and not simulation.cut
            if seen and self._observed is not None and _agrees(simulation, self._observed):
                self.runs.append(run)
                return None
            self._learn(simulation)
            schedule = self._choose_next(simulation)
            if self.runs:
                self._apart = self._apart or (
                    not simulation.cut and _divergence(self.runs[0], run) is not None
                )
                _release(simulation)
            self.runs.append(run)
        return None

    def _begin_again(self, simulation: Simulation) -> tuple[int, ...]:
        """Begin again, now that more is known of what races bring; return the first order."""
        self._touched |= simulation.touched
        self._passes += 1
        self.runs.clear()
        self._path.clear()
        self._known.clear()
        self._apart = False
        return ()

    def _bound(self) -> str | None:
        """Return the bound that stands against one more order, or None."""
        most = self._limits.max_schedules
        if len(self.runs) == (min(ENOUGH, most) if self._apart else most):
            return "max_schedules"
        return self._find_spent() if self.runs else None

    def _find_spent(self) -> str | None:
        """Return the bound of which the part for other orders is used up, or None."""
        found = account()
        if found is not None:
            if found.work_left < self._limits.max_work * (1 - EXPLORING):
                return "max_work"
            if found.bytes_left < self._limits.max_bytes * (1 - EXPLORING):
                return "max_bytes"
        return None

    def _choose(
        self,
        simulation: Simulation,
        options: Sequence[Any],
    ) -> Sequence[int]:
        """Return the options to try at a choice that is met for the first time in this run.

        Where several are left, the state is compared with those of earlier runs at such a choice.
        If it is the same in all that is read later, this run would go on as that one did: it is cut
        here, and what followed there counts for it too. Else the choice becomes a node of the path,
        whose other options further runs take.
        """
        simulation.ledger.account.spend(OPTION_WORK * len(options))
        tried = list(range(len(options)))
        if self._observed is not None:
            if not _agrees(simulation, self._observed):
                return ()
            pairs = [each.pair if isinstance(each, Turn) else each for each in options]
            tried = [
                at
                for at in tried
                if (pair := pairs[at]) is None or _admits(simulation, self._observed, *pair)
            ]
        if len(tried) > 1:
            number = len(simulation.choices)
            takes_turns = isinstance(options[0], Turn)
            addresses = [_address(simulation, option) for option in options]
            address = addresses[0]
            own = [at for at in tried if addresses[at] == address]
            snapshot = None
            # with nothing left for another order no state is kept to compare with
            if self._observed is None and self._reads is not None and self._find_spent() is None:
                snapshot = snapshot_of(simulation)
                for known in self._known.get(snapshot.control, ()):
                    if known.snapshot.matches(snapshot, known.after.live):
                        self._met = known
                        return ()
            self._path.append(
                _Node(
                    number=number,
                    snapshot=snapshot,
                    options=own or tried,
                    elsewhere=[at for at in tried if at not in own] if own else [],
                    address=address,
                    here=frozenset(sender for at in own for sender in _senders(options[at])),
                    same=MergedOptions() if takes_turns else None,
                )
            )
        return tried

    def _learn(self, simulation: Simulation) -> None:
        """Note for each choice on the way of a run what the run read after it.

        From the end backwards: what is written whole is no longer live before that, what is read
        is.

            choice 1    recv a from anyone
                        recv b from anyone     writes b
            choice 2    x = b                  reads b

        At choice 2 b is live; at choice 1 it is not, for it is written before it is read. Two
        states that differ in b alone are one state there.
        """
        if self._reads is None:
            return
        after = _After(live=set(self._reads.always))
        if self._met is not None:
            after.add(self._met.after)
        else:
            after.live |= self._reads.at_end | _list_left(simulation)
            after.left |= {state.rank for state in simulation.ranks if state.state != "finished"}
        sends, named = _sends(simulation), sorted(find_named_receives(simulation), key=_find_first)
        asked = _calls(simulation)
        accesses, at = simulation.accesses, len(simulation.accesses)
        for node in reversed(self._path):
            choice = simulation.choices[node.number]
            for reads, writes in reversed(accesses[choice.mark : at]):
                after.live -= writes
                after.live |= reads
            at = choice.mark
            while sends and sends[-1].order > choice.posted:
                send = sends.pop()
                after.coming.add((simulation.mailbox.address(send), send.rank))
            while isinstance(choice, TurnChoice) and asked and asked[-1].order > choice.asked:
                call = asked.pop()
                after.coming.add((call.to, call.rank))
            while named and named[-1][0] > choice.posted:
                after.named.add(named.pop()[1])
            node.after.add(after)

    def _choose_next(self, simulation: Simulation) -> tuple[int, ...] | None:
        """Return the next order to run: another option at the last choice that has one left."""
        for node in self._path:
            if node.same is None:
                node.options, node.same = merge_options(simulation, node.number, node.options)
        while self._path:
            node = self._path[-1]
            if node.another():
                before = simulation.choices[: node.number]
                return (*(choice.chosen for choice in before), node.options[0])
            self._path.pop()
            if node.snapshot is not None:
                known = _Known(snapshot=node.snapshot.of(node.after.live), after=node.after)
                self._known.setdefault(node.snapshot.control, []).append(known)
        return None


def _find_first(each: tuple[int, NamedReceive]) -> int:
    return each[0]


def _address(simulation: Simulation, option: Any) -> TurnPlace:
    """Return where an option of a choice is taken."""
    if isinstance(option, Turn):
        return option.place(simulation)
    return simulation.mailbox.address(option[1])


def _senders(option: Any) -> tuple[int, ...]:
    """Return whose message an option takes; no rank where it is a turn of another kind.

    A second call of the same rank may still come before a step that it was not tried before.
    """
    pair = option.pair if isinstance(option, Turn) else option
    return () if pair is None else (pair[0].rank,)


def _calls(simulation: Simulation) -> list[FunctionCall]:
    """Return all calls of functions of a run, in order."""
    posts = (
        post
        for state in simulation.ranks
        for work in state.works
        for post in work.posts
        if isinstance(post, FunctionCall)
    )
    return sorted(posts, key=lambda post: post.order)


def _sends(simulation: Simulation) -> list[MessagePost]:
    """Return all sends of a run, in order of posting."""
    posts = (
        post
        for state in simulation.ranks
        for work in state.works
        for post in work.posts
        if isinstance(post, MessagePost) and post.message.sends
    )
    return sorted(posts, key=lambda post: post.order)


def _receives_from_anyone(plan: Plan) -> bool:
    """Whether some step may receive from anyone."""
    return any(
        isinstance(step.operation, PointToPoint)
        and any(param.name == "src" for param in step.operation.params)
        and not any(_names_source(step.arguments.get(name)) for name in ("src", "group_src"))
        for step in steps_of(plan.scenario.steps)
    )


def _names_source(form: Any) -> bool:
    return isinstance(form, Constant | Expression)


def _list_left(simulation: Simulation) -> set[SnapshotsPlace]:
    """Return the names that the ranks hold in the end, but what receives from anyone left there."""
    held = {(state.rank, name) for state in simulation.ranks for name in state.process.held}
    return held - simulation.brought


def _ends(simulation: Simulation) -> Mapping[SnapshotsPlace, Any]:
    """Return what every name holds in the end."""
    return {
        (state.rank, name): state.process.undefined.get(name) or frozen(state.process.scope[name])
        for state in simulation.ranks
        for name in sorted(state.process.held)
    }


def _release(simulation: Simulation) -> None:
    """Let go of what the ranks of a run hold; what they did is kept."""
    for state in simulation.ranks:
        state.process.scope.clear()
    simulation.accesses.clear()


# ---------------------------------------------------------------------------- what a run saw


def _agrees(simulation: Simulation, observed: Trace) -> bool:
    """Whether what the ranks did so far is what an observed run did, as far as both tell."""
    return all(
        _follows(state, rank) for state, rank in zip(simulation.ranks, observed.ranks, strict=True)
    )


def _follows(state: RankState, rank: RankTrace) -> bool:
    ended = rank.ending in {"blocked", "finished"}
    for at, mine in enumerate(state.events):
        if at >= len(rank.events):
            return not ended
        theirs = rank.events[at]
        if _instance(mine) != _instance(theirs):
            return False
        if theirs.state != "done" or mine.state != "done":
            return theirs.state == mine.state or not ended
        for name, value in mine.writes.items():
            if name in theirs.writes and not _is_possible(value, theirs.writes[name], mine, name):
                return False
    return state.state != "finished" or len(state.events) == len(rank.events)


def _is_possible(value: Any, seen: Any, event: Event, name: str) -> bool:
    """Whether an observed value may be this one; what is undefined may be anything."""
    if isinstance(value, Undefined) or isinstance(seen, Undefined):
        return True
    return equal(value, seen) or (name in event.slack and _is_near(value, seen))


#: how far a reduced value may be off for an order to be the one that was taken: it only tells
#: orders apart, and what the value must be is judged elsewhere
NEAR = 1e-2


def _is_near(value: Any, seen: Any) -> bool:
    arrays = isinstance(value, np.ndarray) and isinstance(seen, np.ndarray)
    if not arrays or value.shape != seen.shape or value.dtype.kind not in "fc":
        return True
    wide = np.complex128 if value.dtype.kind == "c" else np.float64
    one, two = value.astype(wide), seen.astype(wide)
    return bool(np.allclose(one, two, rtol=NEAR, atol=NEAR, equal_nan=True))


def _admits(
    simulation: Simulation, observed: Trace, send: MessagePost, receive: MessagePost
) -> bool:
    """Whether an observed run may have taken this message here, by what its buffer held then."""
    state = simulation.ranks[receive.rank]
    events = observed.ranks[receive.rank].events
    call, work, at = receive.call, receive.work, len(state.events)
    if state.waiting != (work,) or call.asynchronous or at >= len(events):
        return True
    if (events[at].index, events[at].iteration) != (call.step.index, call.iteration):
        return False
    if events[at].state != "done" or send.tainted is not None:
        return True
    for name in call.targets:
        if state.process.scope.get(name) is receive.message.buffer and name in events[at].writes:
            return _fills(send.payload, events[at].writes[name])
    return True


def _fills(payload: Any, seen: Any) -> bool:
    if not isinstance(payload, np.ndarray) or not isinstance(seen, np.ndarray):
        return equal(payload, seen)
    if payload.size != seen.size or payload.dtype != seen.dtype:
        return True
    return equal(payload.reshape(-1), seen.reshape(-1))


# ---------------------------------------------------------------------------- races


def race(runs: list[ExaminedRun]) -> Symptom | None:
    """Return the finding that what ranks hold in the end, or how they end, depends on the order.

    It is placed at the earliest receive at which orders with different ends part. What a receive
    from anyone left in a buffer that the end does not state counts for nothing.
    """
    first, *others = [run for run in runs if not run.simulation.cut]
    apart = [
        (_find_parting(first, other), text)
        for other in others
        if (text := _divergence(first, other)) is not None
    ]
    if not apart:
        return None
    (_, mine, theirs), text = min(apart, key=lambda each: each[0][0])
    if isinstance(mine, TurnChoice) and isinstance(theirs, TurnChoice):
        return _tell_turns(mine, theirs, text)
    receive, candidates = _find_receive(first, mine, theirs)
    senders = dict.fromkeys(
        Clause(f"rank {send.rank} sends one in `{send.call.label}`", send.call.mark)
        for send in candidates
    )
    return Symptom(
        name="message_race",
        clauses=(
            Clause(
                f"rank {receive.rank} in `{receive.call.label}`",
                receive.call.mark,
                " takes whichever message comes first",
            ),
            *(replace(each, joint="; " if at else ": ") for at, each in enumerate(senders)),
            Clause(text),
        ),
        kind="message_race",
        index=receive.call.step.index,
        iteration=receive.call.iteration,
        ranks=(receive.rank,),
    )


def _tell_turns(mine: TurnChoice, theirs: TurnChoice, text: str) -> Symptom:
    """Say that what a rank holds depends on when functions of other ranks run on it."""
    rank = mine.turn.rank
    calls = [each.asked for each in (mine.turn, theirs.turn) if each.asked is not None]
    calls += [each.asked for each in mine.options if each.asked is not None]
    turns = list(dict.fromkeys(turn.clause() for turn in (mine.turn, theirs.turn)))
    if len(turns) == 1:
        turns += [each.clause() for each in mine.options if each.clause() not in turns][:1]
    at = [replace(each, joint=" and " if place else ": ") for place, each in enumerate(turns)]
    step = calls[0].call.step if calls else mine.turn.step
    return Symptom(
        name="message_race",
        clauses=(Clause(f"rank {rank} takes these in either order"), *at, Clause(text)),
        kind="message_race",
        index=-1 if step is None else step.index,
        iteration=calls[0].call.iteration if calls else (),
        ranks=(rank,),
    )


def _find_parting(one: ExaminedRun, two: ExaminedRun) -> tuple[int, Any, Any]:
    """Return the choice at which two orders part, by its number: both took the same before it."""
    mine, theirs = one.simulation.choices, two.simulation.choices
    number = next(
        (
            at
            for at, (choice, other) in enumerate(zip(mine, theirs, strict=False))
            if choice.chosen != other.chosen
        ),
        min(len(mine), len(theirs)) - 1,
    )
    return number, mine[number], theirs[number]


def _find_receive(
    first: ExaminedRun, mine: Choice, theirs: Choice
) -> tuple[MessagePost, tuple[MessagePost, ...]]:
    """Return the receive at which two orders take different messages, and who may send to it."""
    receives = mine.options[mine.chosen][1], mine.receive
    receive = receives[0] if receives[0].message.peer is None else receives[1]
    address = first.simulation.mailbox.address(receive)
    return receive, tuple(
        send for send, other in mine.options if first.simulation.mailbox.address(other) == address
    )


def _divergence(one: ExaminedRun, two: ExaminedRun) -> str | None:
    """Return in words what differs between the ends of two orders, or None."""
    pairs = list(zip(one.simulation.ranks, two.simulation.ranks, strict=True))
    for left, right in pairs:
        if left.state != right.state:
            return f"rank {left.rank} is {left.state} in one order and {right.state} in another"
    for left, right in pairs:
        if left.state == "blocked" and stands_at(left) != stands_at(right):
            return f"rank {left.rank} is blocked in one step or another"
    reads, ignored = one.simulation.reads, one.simulation.brought | two.simulation.brought
    ignored = ignored - reads.at_end if reads is not None else set()
    for place_ in sorted(one.ends.keys() | two.ends.keys()):
        mine, theirs = one.ends.get(place_), two.ends.get(place_)
        if place_ in ignored or any(_is_raced(each) for each in (mine, theirs)):
            continue  # what is raced for is a finding already
        if not equal(mine, theirs):
            rank, name = place_
            return (
                f"{name} on rank {rank} is {_shorten(mine)} in the end in one order and "
                f"{_shorten(theirs)} in another"
            )
    return None


def _is_raced(value: Any) -> bool:
    return isinstance(value, Undefined) and value == RACED


def _shorten(value: Any) -> str:
    text = str(value.tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def are_same_values(one: Any, two: Any) -> bool:
    """Return whether two values of a trace are the same to the bit (NaN equals NaN)."""
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(are_same_values, one, two))
    if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
        return False
    return bool(one == two)


def agreed(runs: list[ExaminedRun]) -> list[Any]:
    """Return each rank's events of the first run; what another run differs in is undefined.

    Where a rank goes another way in another order, all that it writes from there on is.
    """
    if len(runs) == 1:
        return [state.events for state in runs[0].simulation.ranks]
    merged = [state.events.copy() for state in runs[0].simulation.ranks]
    for other in runs[1:]:
        for events, state in zip(merged, other.simulation.ranks, strict=True):
            parted = False
            for at in range(events.past, len(events)):
                mine = events[at]
                theirs = state.events[at] if at < len(state.events) else None
                if theirs is None and other.simulation.cut and not parted:
                    break  # from there on it is as in an order that was seen
                parted = parted or theirs is None or _instance(mine) != _instance(theirs)
                events[at] = _merge(mine, None if parted else theirs)
    return merged


def _instance(event: Event) -> tuple[int, tuple[int, ...]]:
    return event.index, event.iteration


def _merge(mine: Event, theirs: Event | None) -> Event:
    raced = Undefined(cause="a receive from anyone", diagnosis="message_race")
    writes = theirs.writes if theirs else {}
    observed = theirs.observed if theirs else {}
    changed = {
        name: _keep_shape(raced, value, writes.get(name))
        for name, value in mine.writes.items()
        if not _is_kept(name, value, writes)
    }
    seen = {
        key: raced for key, value in mine.observed.items() if not _is_kept(key, value, observed)
    }
    if not changed and not seen:
        return mine
    return replace(mine, writes={**mine.writes, **changed}, observed={**mine.observed, **seen})


def _keep_shape(raced: Undefined, one: Any, other: Any) -> Undefined:
    """Keep the shape and dtype, where two schedules agree on these at least."""
    arrays = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    if arrays and (one.shape, one.dtype) == (other.shape, other.dtype):
        return measure(raced, one)
    return raced


def _is_kept(name: str, value: Any, others: Mapping[str, Any]) -> bool:
    return name in others and equal(value, others[name])


class ExploredOrders(Orders):
    """The orders of a program that were gone through, as traces made when they are asked for.

    A verdict asks of a real run whether some order of arrival explains it. `follow` does not try
    all of them: at each choice it keeps the options that fit what the ranks of that run held, which
    is commonly one.
    """

    def __init__(
        self,
        plan: Plan,
        runs: Sequence[ExaminedRun],
        limits: Limits,
        start: StartState | None = None,
    ) -> None:
        self._asked = plan, limits
        self._start = start
        self._runs = runs

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._runs)

    def __getitem__(self, at: Any) -> Any:
        """Return the trace of one order, or of several."""
        runs = self._runs[at]
        return [_trace(run) for run in runs] if isinstance(runs, list) else _trace(runs)

    def follow(self, observed: Trace) -> tuple[Trace | None, bool]:
        """Follow the choices that a run can have made, by what its ranks held."""
        plan, limits = self._asked
        search = _Search(
            plan, numpy_arrays(limits), Semantics(), limits, observed=observed, start=self._start
        )
        whole = search.run() is None
        run = search.runs[-1]
        met = not run.simulation.cut and _agrees(run.simulation, observed)
        return (_trace(run) if met else None), whole


def _trace(run: ExaminedRun) -> Trace:
    ranks = tuple(rank_trace(state.rank, [run], state.events, ()) for state in run.simulation.ranks)
    outcome = "" if run.simulation.cut else run.outcome
    return Trace(backend="reference", outcome=outcome, ranks=ranks, because=_sources(run))


def _sources(run: ExaminedRun) -> tuple[str, ...]:
    """Return in words whose messages the receives from anyone took, rank by rank."""
    senders: dict[int, list[int]] = {}
    turns: dict[int, list[str]] = {}
    for choice in run.simulation.choices:
        if isinstance(choice, TurnChoice):
            turns.setdefault(choice.turn.rank, []).append(choice.turn.clause().words)
            continue
        send, receive = choice.options[choice.chosen]
        senders.setdefault(receive.rank, []).append(send.rank)
    served = [
        f"rank {rank} takes {', then '.join(each[:SHOWN])}{', ...' if each[SHOWN:] else ''}"
        for rank, each in sorted(turns.items())
    ]
    taken = [
        f"rank {rank} takes from {_word_turn(sources)}" for rank, sources in sorted(senders.items())
    ]
    return (*served, *taken)


def _word_turn(ranks: list[int]) -> str:
    shown = ", then ".join(f"rank {rank}" for rank in ranks[:SHOWN])
    return shown if len(ranks) <= SHOWN else f"{shown}, ..."


# -------------------------------------------------------------------------------------------------
# What depends on how much a backend lets pass: hazards, and where else a rank may stand.
#
# A program is a hazard if it finishes under one reading of the semantics and not under another
# that is just as correct. Where the semantics leave open who is stuck, the analysis says where a
# backend may leave a rank, so that a run which stands there is recognised.

#: places of one rank that a trace lists
HAZARDS_LISTED = 1_000


# The same ring of sends is two diagnoses, because two things are true of it.
#
#     rank 0   send x to 1   recv y from 1
#     rank 1   send x to 0   recv y from 0
#
# By the standard both ranks wait in `send` for the other one's receive: a deadlock
# (`circular_wait`). With a buffer both sends return, and the program completes. An author who has
# only run it with small tensors has never seen it hang. So the ring is run once more with buffers,
# and where it then completes the finding is called what it is, a `buffering_hazard`: it hangs on
# the day on which the tensors no longer fit.
def find_unbuffered_rings(
    plan: Plan, arrays: Arrays, main: ExaminedRun, limits: Limits, start: StartState | None = None
) -> list[Symptom]:
    """Find rings that only a backend which buffers sends would not be caught in."""
    rings = [finding for finding in main.findings if finding.name == "circular_wait"]
    if not rings or not main.simulation.mailbox.sends:
        return []
    buffered = rest(plan, arrays, Semantics(buffer=Buffer()), limits=limits, start=start)
    stuck = {state.rank for state in buffered.simulation.ranks if state.state == "blocked"}
    buffered.simulation.dissolve()
    return [
        replace(
            ring,
            name="buffering_hazard",
            clauses=(Clause(_BUFFERED),),
        )
        for ring in rings
        if not (stuck | plan.scenario.truncated) & set(ring.ranks)
    ]


def hangs_on_sends(plan: Plan, limits: Limits) -> bool:
    """Return whether some rank stands elsewhere where sends are buffered, as a backend may do."""
    arrays = numpy_arrays(limits)
    runs = [
        rest(plan, arrays, Semantics(buffer=buffer), limits=limits) for buffer in (None, Buffer())
    ]
    places = [[stands_at(state) for state in run.simulation.ranks] for run in runs]
    for run in runs:
        run.simulation.dissolve()
    return places[0] != places[1]


def _entries(state: RankState) -> Iterator[tuple[CollectiveMatch | MessagePost, int, bool]]:
    """Yield what a rank enters (True) and waits for (False), in order, with how many take part."""
    waits: dict[int, list[Work]] = {}
    for work in state.works:
        if work.waited:
            waits.setdefault(work.waited_after or work.number + 1, []).append(work)
    for work in state.works:
        for exchange, size in _exchanges(work).items():
            yield exchange, size, True
        for each in waits.get(work.number + 1, ()):
            for exchange, size in _exchanges(each).items():
                yield exchange, size, False


def _exchanges(work: Work) -> dict[CollectiveMatch | MessagePost, int]:
    """Return what a call takes part in, each with how many do; a message is its earlier side."""
    found: dict[CollectiveMatch | MessagePost, int] = {}
    for post in work.posts:
        if post.past:
            continue
        if isinstance(post, CollectivePost):
            found[post.match] = post.match.group.size
        elif isinstance(post, MessagePost):
            found[min(post, post.partner or post, key=lambda side: side.order)] = 2
    return found


_BUFFERED = "it finishes only where the backend buffers what is sent, and no backend has to"
_LEFT_EARLY = (
    "it finishes only where a rank leaves a collective before all members have entered, which no "
    "backend has to allow"
)


def early_leavers(strict: ExaminedRun) -> list[Symptom]:
    """Find rings that only a backend is caught in whose collectives wait for every member.

    A program must not rely on a broadcast's source leaving before its leaves have come, nor on
    the opposite: any collective may synchronise, and need not (MPI 4.1, 6.14). A ring over several
    groups is `group_order` before it is a hazard.
    """
    rings = [ring for ring in strict.findings if ring.path]
    crossed = [
        replace(ring, kind=f"early:{ring.kind}") for ring in rings if ring.name == "group_order"
    ]
    return [*crossed, *map(_report_early_leaver, rings)]


def _report_early_leaver(ring: Symptom) -> Symptom:
    return replace(
        ring,
        name="buffering_hazard",
        clauses=(Clause(_LEFT_EARLY), replace(ring.clauses[0], joint=": "), *ring.clauses[1:]),
        kind=f"early:{ring.kind}",
        also=("circular_wait", *ring.also),
    )


NONE: frozenset[Place] = frozenset()


def may_stand(runs: list[ExaminedRun], strict: ExaminedRun | None) -> dict[int, tuple[Place, ...]]:
    """Return, by rank, where a correct backend may leave it although nothing need hold it.

    That is: in a collective that is incomplete, or whose members disagree; where it meets a message
    whose handle was dropped (:func:`_find_cancelled`), or waits for one again; where another
    order of arrival or the strict semantics leave it. After the first such place it is wherever the
    rank communicates, because a rank that waits there may be missed later.
    """
    main = runs[0]
    found: dict[int, set[Place]] = {}
    for rank, opening in _open_places(main):
        found.setdefault(rank, set()).add(opening)
    others = [*runs[1:], *([strict] if strict else [])]
    for other in others:
        for mine, theirs in zip(main.simulation.ranks, other.simulation.ranks, strict=True):
            place = stands_at(theirs)
            if place is not None and place != stands_at(mine):
                found.setdefault(mine.rank, set()).add(place)
    if found:
        first = min(index for places in found.values() for index, _ in places)
        later = _later(main, first, {rank for rank, _ in _open_places(main)})
        return _order(found, dict(later))
    return {}


def _order(
    found: Mapping[int, set[Place]], later: Mapping[int, frozenset[Place]]
) -> dict[int, tuple[Place, ...]]:
    """Return both together in order, by rank; what is the same for many ranks is one tuple."""
    made: dict[int, tuple[Place, ...]] = {}
    alike: dict[tuple[int, frozenset[Place]], tuple[Place, ...]] = {}
    for rank in found.keys() | later.keys():
        coming, here = later.get(rank, NONE), frozenset(found.get(rank, ()))
        both = (id(coming), here)
        if both not in alike:
            alike[both] = tuple(sorted(coming | here))
        made[rank] = alike[both]
    return made


def _open_places(main: ExaminedRun) -> Iterator[tuple[int, Place]]:
    for match in main.simulation.matches.all():
        if match.complete and not match.spoiled:
            continue
        for collective_post in match.joined.values():
            call = collective_post.call
            yield collective_post.rank, (call.step.index, call.iteration)
            if collective_post.work is not None and collective_post.work.waited_at is not None:
                yield collective_post.rank, collective_post.work.waited_at
    yield from _find_cancelled(main)
    yield from main.simulation.again
    for here in main.simulation.creations.all():
        if len({creating.group.ranks for creating in here.values()}) > 1:
            for rank, creating in here.items():
                yield rank, (creating.call.step.index, creating.call.iteration)


def _find_cancelled(main: ExaminedRun) -> Iterator[tuple[int, Place]]:
    """Yield where ranks met a message whose handle was dropped, and where that was.

    A backend may take such a message back that has not met its other side (Gloo does), and the one
    after it on the same way with it: the rank that met it, and all that follows, may stand for
    ever.
    """
    for state in main.simulation.ranks:
        for work in state.works:
            if not state.gave_up(work):
                continue
            for post in work.posts:
                if post.past and isinstance(post, MessagePost):
                    raise HistoryMissingError
                partner = post.partner if isinstance(post, MessagePost) else None
                if partner is not None and partner.work is not None and partner.work.waited:
                    yield state.rank, (work.call.step.index, work.call.iteration)
                    yield partner.rank, (partner.call.step.index, partner.call.iteration)
                    if partner.work.waited_at is not None:
                        yield partner.rank, partner.work.waited_at


def _later(
    main: ExaminedRun, first: int, open_ranks: set[int]
) -> Iterator[tuple[int, frozenset[Place]]]:
    """Yield where the ranks communicate from step `first` on, `open_ranks` if they pass too.

    What is the same for many ranks is one set.
    """
    steps = steps_of(main.simulation.plan.scenario.steps)
    communicates = {
        step.index
        for step in steps
        if step.operation is not None and not isinstance(step.operation, Local)
    }
    #: what ranks took together, as far as it counts, and whether it goes as far as `first`
    past: dict[int, tuple[list[Place], bool]] = {}
    known: dict[tuple[int, tuple[Place, ...]], frozenset[Place]] = {}
    for state in main.simulation.ranks:
        together = state.events.places()
        if id(together) not in past:
            past[id(together)] = _communications(together, first, communicates, begun=False)
        before, begun = past[id(together)]
        taken = [(event.index, event.iteration) for event in state.events.own]
        places, _ = _communications(taken, first, communicates, begun=begun)
        place = stands_at(state)
        if place is not None and place[0] >= first:
            places.append(place)
            # a backend may let it pass what spoils the program, and leave it at a later step
            coming = main.futures.of(state.rank) if state.rank in open_ranks else ()
            places += [(call.step.index, call.iteration) for call in coming]
        own = (id(together), tuple(places[: max(HAZARDS_LISTED - len(before), 0)]))
        if own not in known:
            known[own] = frozenset([*before[:HAZARDS_LISTED], *own[1]])
        if known[own]:
            yield state.rank, known[own]


def _communications(
    places: Sequence[Place], first: int, communicates: set[int], *, begun: bool
) -> tuple[list[Place], bool]:
    """Return the places from step `first` on at which ranks communicate, and whether it came."""
    found = []
    for each in places:
        begun = begun or each[0] >= first
        if begun and each[0] in communicates:
            found.append(each)
    return found, begun
