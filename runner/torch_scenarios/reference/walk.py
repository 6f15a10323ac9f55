"""The walk: one rank after the other takes its steps, as far as it can, until nothing moves.

The walk asks the rules (:mod:`torch_scenarios.reference.rules`) what a step means, and applies the
effects that they return: it posts, stores, wakes and notes. What it does is decided there; here is
how it is done for one rank at a time.

Deterministic: ranks advance in order, each as far as it can; virtual time passes only by `sleep`
and by waiting for others. The *semantics* say how much a correct implementation may let pass:

* sends are a rendezvous (they wait for the receiver), or buffered;
* a rank leaves a collective as soon as nothing it *needs* is missing, or (strict) only once every
  member has entered;
* what is called begins at once, or behind what was called before it
  (:class:`torch_scenarios.reference.matching.Streams`).

The tale of one all_reduce of two ranks, turn by turn (decision 0104 says why it is so flat):

    rank 0   calls.check           nothing is refused
             collective.enter      `Begin`: its work is enqueued, and the rank blocked
             _start, meet          it enters the group's first collective; it needs rank 1
    rank 1   check, enter, _start  the same, and now all are there
             collective.settle     `Leave`: each post has what its rank holds afterwards
             collective.complete   `Pass` for both: their works are done
             _go_on                each rank stores that, notes its event, and is ready

What cannot go on at the end is left in the state: :mod:`torch_scenarios.reference.diagnoses`
explains it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, partial
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from msgspec.structs import replace

from torch_scenarios.expressions.arrays import Arrays
from torch_scenarios.expressions.values import Undefined
from torch_scenarios.limits import DEFAULT, Limits
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.procedure import Procedures
from torch_scenarios.model.process import Call, Process, UpcomingStep
from torch_scenarios.model.scenario import Step
from torch_scenarios.model.tolerance import move
from torch_scenarios.model.trace import Event
from torch_scenarios.model.traffic import Enter, Traffic
from torch_scenarios.operations.base import (
    Collective,
    Compound,
    Departure,
    Group,
    GroupCreation,
    IssuedCall,
    Local,
    Operation,
    PointToPoint,
    RemoteCall,
    Waiting,
)
from torch_scenarios.operations.wait import output_of
from torch_scenarios.reference import buffers, matching
from torch_scenarios.reference.buffers import look
from torch_scenarios.reference.choices import Choice, Turn, TurnChoice, sender_of
from torch_scenarios.reference.effects import (
    Abandon,
    Ask,
    Await,
    Begin,
    Create,
    Deny,
    Effect,
    End,
    Go,
    Keep,
    Late,
    Leave,
    Open,
    Pass,
    Raise,
    Spoil,
)
from torch_scenarios.reference.rules import call as calls
from torch_scenarios.reference.rules import (
    collective,
    compound,
    creation,
    local,
    message,
    procedure,
    waiting,
)
from torch_scenarios.reference.rules.words import name_failed, name_touch
from torch_scenarios.reference.semantics import Semantics
from torch_scenarios.reference.snapshots import NOTHING, Access, Place, Reads
from torch_scenarios.reference.state import (
    Ledger,
    RankState,
    Touched,
    frozen,
    frozen_arguments,
    snapshot,
    store,
)
from torch_scenarios.reference.symptoms import Symptom

#: (the run, the options: sends and receives, or turns) -> which of them to try, in order
Choosing: TypeAlias = Callable[["Simulation", Sequence[Any]], Sequence[int]]


class StartState(matching.EarlierMatches, Protocol):
    """Where ranks have come to before they go on by themselves, and what they have under way.

    :class:`torch_scenarios.reference.vector.remainder.Remainder` is one. The walk knows it by this
    protocol alone, so that nothing in it depends on how cohorts keep what they hold.
    """

    def ledger(self) -> Ledger:
        """Return a ledger that goes on from what the ranks have done."""

    def traffic(self) -> Traffic:
        """Return what went between the ranks, to be added to."""

    def state(self, rank: int, arrays: Arrays, ledger: Ledger, /) -> RankState:
        """Return a rank where it stands, with nothing under way yet."""

    def find_created(self, rank: int, /) -> Iterator[tuple[Call, Group]]:
        """Yield the creations that a rank has behind it, each with the group."""

    def enter(
        self, state: RankState, matches: matching.CollectiveMatches, mailbox: matching.Mailbox, /
    ) -> list[matching.CollectivePost | matching.MessagePost]:
        """Let a rank have under way what it has; returns what waits for others."""


class Simulation:
    """The state of all ranks, advanced until nothing moves.

        Simulation(plan, arrays, semantics=Semantics()).run()

    is one run in the order of the ranks. The same program is run again with other `semantics`
    (sends are buffered, no rank leaves a collective early), another `schedule` of receives from
    anyone, or moved roundings (`way`); what differs between such runs is what a correct program
    must not rely on.

    A simulation owns all that changes: mailboxes, collectives, streams and the states of the ranks.
    Rules read it. It is used once, and looked at when it has come to rest.
    """

    def __init__(  # noqa: PLR0913 -- each of them changes what is run
        self,
        plan: Plan,
        arrays: Arrays,
        *,
        semantics: Semantics,
        schedule: tuple[int, ...] = (),
        limits: Limits = DEFAULT,
        way: int | None = None,
        trained: bool = False,
        choosing: Choosing | None = None,
        reads: Reads | None = None,
        start: StartState | None = None,
        touched: AbstractSet[Touched] = frozenset(),
    ) -> None:
        """Bind every rank's initial values; raises ScenarioError where one cannot be computed.

        `way` lets every reduction be off by its error bound
        (:mod:`torch_scenarios.model.tolerance`), and with it, where `trained` says so, what ranks
        compute of a model by its rounding. `choosing` is asked, at a choice that the schedule
        leaves open, which options to try; with none of them the run is `cut` there. `reads` lets
        the run note what is read and written. With a `start` the ranks go on from where that has
        them; the semantics must let pass all that was done there. `touched` is what races were
        found to bring to other ranks: it is undefined.
        """
        self.plan = plan
        self.semantics = semantics
        self.schedule = schedule
        #: what each receive from anyone could take, and what it took
        self.choices: list[Choice | TurnChoice] = []
        self.cut = False
        self.reads = reads
        #: what ranks read and then write whole, in order; kept where `reads` is given
        self.accesses: list[Access] = []
        #: the names that hold what a receive from anyone brought last
        self.brought: set[Place] = set()
        self._choosing = choosing
        self.matches = matching.CollectiveMatches(start)
        self.mailbox = matching.Mailbox(semantics, start)
        self.traffic = Traffic(plan.world_size) if start is None else start.traffic()
        self.streams = matching.Streams(semantics)
        self.creations = matching.Creations()
        #: rank -> the creation that it waits in
        self.creating: dict[int, matching.CreationPost] = {}
        #: step -> the calls of a collective on ranks that are not in its group, by rank
        self.outside: dict[int, dict[int, Call]] = {}
        #: the indexes of two steps that met in a collective -> a call of each
        self.together: dict[
            tuple[int, int], tuple[matching.CollectivePost, matching.CollectivePost]
        ] = {}
        self.findings: list[Symptom] = []
        #: what a case should know of its values and need not care for, each once
        self.notes: dict[str, None] = {}
        #: what races bring to other ranks; more than was known where the run is to be made again
        self.touched = set(touched)
        self.opened: set[str] = set()
        #: whether a rank left a collective before every member had entered
        self.hurried = False
        #: the collectives that ranks waited in before they went on by themselves
        self.entered: set[matching.CollectivePost] = set()
        self.way = way
        self._trained = trained and bool(plan.scenario.models)
        #: whether some result was off by its slack
        self.moved = self._trained
        #: the sends that a buffer took before their receive was posted
        self.early: list[matching.MessagePost] = []
        #: what functions share with the steps of the ranks that they run on
        self.procedures = Procedures(plan.scenario)
        #: calls of functions that have not run, in order, and how many there were
        self.asked: list[matching.FunctionCall] = []
        self.calls = 0
        #: where a rank waits again for a message's work: its place
        self.again: list[tuple[int, tuple[int, tuple[int, ...]]]] = []
        #: messages that met although their tags differ: send and receive
        self.crossed: list[tuple[matching.MessagePost, matching.MessagePost]] = []
        self.ledger = Ledger(limits) if start is None else start.ledger()
        self._ready: deque[RankState] = deque()
        #: what a call has just enqueued and nothing holds back: it begins at the end of the turn
        self._begun: list[matching.Work] = []
        #: the ranks of posts that effects have let pass, until all of these are applied
        self._passed: deque[RankState] = deque()
        self.ranks: list[RankState] = []
        if start is None:
            self._initialise(arrays)
        else:
            self._continue(start, arrays)

    def _initialise(self, arrays: Arrays) -> None:
        """Let every rank stand before its first step."""
        plan, ledger = self.plan, self.ledger
        for rank in range(plan.world_size):
            process = Process(plan, rank, arrays, ledger=ledger)
            process.way = self.way if self._trained else None
            state = RankState(
                rank=rank,
                process=process,
                walker=process.walk(),
                ledger=ledger,
                findings=self.findings,
                touched=self.touched,
                truncated=rank in plan.scenario.truncated,
            )
            state.initial = {name: snapshot(process, name) for name in sorted(process.held)}
            if self.procedures:
                process.pauses = partial(self._pauses, state)
            self.ranks.append(state)
            self._ready.append(state)

    def _continue(self, start: StartState, arrays: Arrays) -> None:
        """Let every rank stand where it has come to, with what it has under way."""
        self.ranks = [
            start.state(rank, arrays, self.ledger) for rank in range(self.plan.world_size)
        ]
        for state in self.ranks:
            state.findings, state.touched = self.findings, self.touched
        self._ready.extend(state for state in self.ranks if state.state == "ready")
        for state in self.ranks:
            for call, group in start.find_created(state.rank):
                counts = self.semantics.counts
                series = self.creations.series(group, state.process, counts, local=False)
                made = self.creations.create(call, 0.0, group, series, splits=False)
                made.done_s, made.past = 0.0, True
                self.creations.enter(made)
        waiting = [
            post for state in self.ranks for post in start.enter(state, self.matches, self.mailbox)
        ]
        self.entered = {post for post in waiting if isinstance(post, matching.CollectivePost)}
        if self.touched:
            self._spoil_past()
        self.mailbox.count_anew()
        for post in waiting:
            if isinstance(post, matching.CollectivePost) or post.message.sends:
                post.tainted = post.tainted or self.touch(post)
            if isinstance(post, matching.MessagePost):
                if post.partner is None:
                    self._match(post)
            elif post.done_s is None:
                self.meet(post)

    def _spoil_past(self) -> None:
        """Leave undefined what collectives brought before, where a member touches its tensor since.

        Raises HistoryMissingError where a member has waited for it before: what it did then is not
        undone.
        """
        links = {link for link, _ in self.touched}
        found: dict[str, list[matching.CollectivePost]] = {}
        for post in (post for state in self.ranks for work in state.works for post in work.posts):
            if isinstance(post, matching.CollectivePost) and post.past and post.link in links:
                found.setdefault(post.link, []).append(post)
        for posts in found.values():
            if len(posts) < posts[0].match.group.size:
                raise matching.HistoryMissingError
            for post in posts:
                post.outcome = collective.spoil(post, buffers.RACED)

    def touch(self, post: matching.CollectivePost | matching.MessagePost) -> Undefined | None:
        """Return what others get of a tensor that is known to be touched meanwhile, or None.

        A rank that writes into the input of an async all_reduce before its `wait` races with the
        transfer: what the others get depends on which came first. The write may come in the walk
        long after the transfer has ended there. So the first run only finds the race, and is made
        again with it in `touched`; only then do the others hold an undefined value from the
        beginning.
        """
        known = bool(self.touched) and (post.link, post.rank) in self.touched
        return buffers.RACED if known else None

    # ------------------------------------------------------------------ the loop

    def run(self) -> Simulation:
        """Advance until every rank has ended or can go on no more."""
        self._forbid()
        while True:
            while self._ready:
                state = self._ready.popleft()
                # A rank is taken as far as it can go before another one has a turn. That is enough,
                # since what a step means may depend only on who has called what, and not on when:
                # the few things for which the order counts are choices, and those wait until
                # nothing else moves.
                while (call := self._take_next(state)) is not None:
                    operation = call.operation
                    if operation is None or self._is_outside(state, call, operation):
                        self.record(state, call, start_s=state.clock_s)
                        continue
                    effects = calls.check(self, state, call, operation)
                    self.apply(state, effects)
                    stops = bool(effects) and effects[-1].__class__ in _STOPS
                    if stops:
                        continue
                    state.racing = buffers.check(state, call)
                    if self.asked and not isinstance(operation, Local | Waiting):
                        self._race_with_calls(state, call)
                    self.apply(state, _rule_of(operation.__class__)(self, state, call))
                    # What the call started begins only here, when its own effects are all applied:
                    # the rank has returned from the call, or is blocked in it, so that those it
                    # meets see it in its new state.
                    if self._begun:
                        self._start(self._begun.pop())
            if self._advance() or self._choose():
                continue
            if self.cut or not self._give_up():
                self._depart()
                return self

    def _take_next(self, state: RankState) -> Call | None:
        """Return the rank's next step; None where it waits, or has ended.

        A process yields `UpcomingStep` in place of a call where functions of other ranks may run
        before the step: nothing of the step is evaluated yet, since they could change what it
        reads. The rank is then `paused`, and that it goes on is one of the turns of
        :meth:`_choose`.
        """
        if state.state != "ready":
            return None
        self.ledger.step(state.call.step.mark if state.call else None)
        call = next(state.walker, None)
        if isinstance(call, UpcomingStep):
            departs = isinstance(call.step.operation, Departure)
            state.state, state.pausing = ("departing" if departs else "paused"), call.step
            return None
        buffers.note_reads(state, call)
        state.call = call
        if call is None:
            state.state = "finished"
        elif self.reads is not None:
            self.accesses.append(self.reads.find_given(state.rank, call.step))
        return call

    def _is_outside(self, state: RankState, call: Call, operation: Operation) -> bool:
        """Whether a collective is of a group that the rank is not in; which it may know of.

        torch warns and returns None there. The step does nothing, and is kept in `outside` where
        the rank knows the group: the trace then has a warning `outside_of_group`.
        """
        if not isinstance(operation, Collective) or collective.concerns(call.entry.group_rank):
            return False
        if call.entry.group.name in state.process.scope:
            self.outside.setdefault(call.step.index, {})[state.rank] = call
        return True

    def _forbid(self) -> None:
        """Let every rank raise before its first step, where torch refuses a group.

        Then no rank takes any step. The event has the index -1, and names the group.
        """
        forbidden = creation.forbid(self.plan)
        if forbidden is None:
            return
        label, symptom, failure = forbidden
        self.findings.append(symptom)
        for state in self.ranks:
            state.events.append(
                Event(index=-1, label=label, state="raised", end_s=0.0, failure=failure)
            )
            state.state = "raised"
        self._ready.clear()

    def _give_up(self) -> bool:
        """Let those raise who wait for what never comes; whether there are any.

        It is asked last, when no order of what is left could let them go on. A rank that expects
        the error (`expect: {raises: timeout}`) is ready again, and so the loop begins once more.
        """
        raising = waiting.give_up(self)
        for state, effects in raising:
            self.apply(state, effects)
            if state.state == "ready":
                self._ready.append(state)
        return bool(raising)

    # ------------------------------------------------------------------ effects, applied

    # Ranks go on after all effects of a rule are applied, never between two of them (decision 104).
    #
    #     Leave([(0, x), (1, x)])   Pass(0)   Pass(1)
    #
    # If rank 0 went on at its `Pass`, it would take its next step while rank 1 still counts as
    # blocked, and that step could meet rank 1's old state: a second collective of the same two
    # ranks would begin within the effects of the first. Nothing is wrong in that by itself, but
    # each rule would have to hold in the middle of every other one. The order in which ranks go on
    # is that of their posts, so that a run is the same each time.
    def apply(self, state: RankState, effects: Iterable[Effect]) -> None:
        """Carry effects out, in order, those of one rank on `state`; then let ranks go on."""
        for effect in effects:
            self._ways[effect.__class__](self, state, effect)
        while self._passed:
            passed = self._passed.popleft()
            if self._go_on(passed):
                self._ready.append(passed)

    def _find(self, _: RankState, symptom: Symptom) -> None:
        self.findings.append(symptom)

    def _open(self, _: RankState, effect: Open) -> None:
        self.opened |= effect.outcomes

    def _begin(self, state: RankState, effect: Begin) -> None:
        """Make a call that starts work: it blocks the rank unless it is asynchronous.

        What it starts begins at the end of this turn, or once all before it on a stream is done.
        With one stream for each group (NCCL) and two calls with `async_op=True`:

            all_reduce(x)   first of its stream   begins now
            all_reduce(y)   behind it             both calls have returned; y begins when x is done

        A call that is refused leaves a work that has begun and holds its refusal: the handle is
        there, and `wait` raises. A call that `streams.holds` blocks even if it is asynchronous: it
        is one of the calls that are taken to block the host itself.
        """
        call = state.call
        assert call is not None
        work = self._work(state, call)
        if effect.refusal is not None:
            work.begun, work.refusal = True, effect.refusal
            self._return(state, work)
            return
        if self.streams.holds(work):
            state.waiting, state.state = (work,), "blocked"
            return
        work.messages = effect.messages
        work.tainted = buffers.find_taint(state, call)
        if call.asynchronous:
            self._return(state, work)
        if self.streams.enqueue(work):
            self._begun.append(work)

    def _work(self, state: RankState, call: Call) -> matching.Work:
        """Return the work of a call, none of it posted.

        `at` is the number of the event that the call will have, and `number` that of the work on
        its rank. A synchronous call is blocked in its work from now on; an asynchronous one still
        has to return.
        """
        at, number = len(state.events), len(state.works)
        work = matching.Work(
            rank=state.rank, call=call, start_s=state.clock_s, at=at, number=number
        )
        state.works.append(work)
        if not call.asynchronous:
            work.waited = True
            state.waiting = (work,)
            state.state = "blocked"
        return work

    def _return(self, state: RankState, work: matching.Work) -> None:
        """Let an asynchronous call return: its work has a handle, and the call's tensors.

        From here until a `wait` the tensors are in use: who writes one meanwhile, or reads one that
        is received into, races. A handle of the same name is replaced, as a Python variable would
        be.
        """
        call = work.call
        work.handle = call.handle
        if work.handle is not None:
            state.handles[work.handle] = work
            state.process.keep(call)
        buffers.take(state, call, work)
        self.record(state, call, start_s=state.clock_s, written=())

    def _start(self, work: matching.Work) -> None:
        """Begin a work: post its messages, or enter a collective, and meet who is there."""
        work.begun = True
        if work.messages:
            for post in self._post(work):
                self._match(post)
        else:
            self.meet(self._enter(work))

    def _advance(self) -> bool:
        """Begin the works that have become the first of their streams; whether there are any.

        A stream is a queue on each rank. The one of rank 0 may be at its second work while that of
        rank 1 is at its first: then the second work, which has begun on rank 0, waits for rank 1.
        """
        any_began = False
        for work in self.streams.advance():
            self._start(work)
            any_began = True
        return any_began

    def _enter(self, work: matching.Work) -> matching.CollectivePost:
        """Enter the group's next collective, and note how many bytes the rank is to send for it.

        Which one is next is counted by the member alone: its n-th call on the group is in the
        group's n-th collective, whatever the operation is. So an `all_reduce` of one rank meets a
        `broadcast` of another, and is found as a disagreement. torch itself looks at that under
        TORCH_DISTRIBUTED_DEBUG=DETAIL only.
        """
        call = work.call
        group = call.entry.group
        member = self.matches.join(call, work.start_s)
        operation = member.operation
        member.tainted = work.tainted or self.touch(member)
        volume = operation.volume(call.entry)
        member.number = self.traffic.stroke()
        self.traffic.enter(
            Enter(
                number=member.number,
                ranks=work.rank,
                sent=volume.sent,
                name=operation.name,
                key=group.key,
                size=volume.size,
                members=group.ranks,
                step=call.step.index,
                group=group.name,
            )
        )
        work.hold([member])
        return member

    def meet(self, member: matching.CollectivePost) -> None:
        """Let those pass who miss no other now, and leave them what they hold afterwards.

        Once all members are there they pass together. Before, and unless the semantics are strict,
        those pass that need none of the missing:

            broadcast from rank 0     rank 0 enters first    it needs no one, and passes at once
                                      rank 1 enters later    it needs rank 0, who was there
            broadcast from rank 0     rank 1 enters first    it waits
            all_reduce                whichever is first     it waits for the other

        A program that hangs only under the strict semantics relies on a broadcast that does not
        wait. `hurried` says that a strict run could differ at all from this one.
        """
        match, operation = member.match, member.operation
        state, entered = self.ranks[member.rank], match.of(operation.name)
        strict, ledger = self.semantics.strict, self.ledger
        if collective.is_whole(len(entered), match.group.size):
            if operation.takes_objects:
                self._weigh(operation, entered)
            self.apply(state, collective.settle(match, member, entered, ledger))
            if not (strict and match.spoiled):  # who disagrees does not pass at all
                self.apply(state, collective.complete(entered))
                self._note_steps(entered)
        elif not strict:
            for other in match.free(member, collective.needs):
                self.hurried = True
                self.apply(state, collective.settle(match, other, entered, ledger))
                self.apply(state, collective.pass_early(other, entered))

    def _note_steps(self, entered: Mapping[int, matching.CollectivePost]) -> None:
        """Note the steps that met, each by its lowest rank, whichever member came last.

        Where rank 0 enters by the step at line 7 and ranks 1 to 3 by that at line 9, `together` has
        the two lines with ranks 0 and 1. Nothing need be wrong in that, since the two branches of
        an `if` on the rank look so. Where the tensors have different names as well, the trace has a
        warning `steps_apart`.
        """
        first: dict[int, matching.CollectivePost] = {}
        for at in sorted(entered):
            first.setdefault(entered[at].call.step.index, entered[at])
        if len(first) < 2:
            return
        one = first.pop(min(first))
        for index, other in first.items():
            indexes = (one.call.step.index, index)
            known = self.together.get(indexes)
            if known is None or one.rank < known[0].rank:
                self.together[indexes] = (one, other)

    def _weigh(self, operation: Collective, entered: Mapping[int, matching.CollectivePost]) -> None:
        """Note the bytes of a collective of objects, all of whose members are there.

        `all_gather_object` pickles, gathers the lengths, pads all to the longest, and gathers
        those. What a rank sends depends on the largest object of any: with 20 bytes on rank 0 and
        2,000 on rank 1 both send 2,000. So it is known only when the last member has entered; until
        then it counts 0.

        Those that disagree on the root may pass no object at all.
        """
        members = [entered[at] for at in sorted(entered)]
        if any(operation.refuse(each.entry) is not None for each in members):
            return
        entries = [each.entry for each in members]
        if operation.rooted and len({operation.root(entry) for entry in entries}) > 1:
            return
        made = operation.tensor_calls(entries)
        parts = tuple((call.name, call.size) for call in made)
        for at, member in enumerate(members if made else ()):
            self.traffic.weigh(member.number, sum(call.sent[at] for call in made), parts)

    def _post(self, work: matching.Work) -> list[matching.MessagePost]:
        """Post the messages of a call, in the order of its list.

        Between the same two ranks with the same tag a receive takes the first send that is left
        (MPI 4.1, 3.5), so that the order within a list matters. All begin together: one of a list
        waits for none before it.
        """
        call, posts = work.call, list[matching.MessagePost]()
        for each in work.messages:
            group = each.group or call.entry.group
            post = self.mailbox.post(call, group, each, work.start_s)
            if each.sends:
                post.tainted = work.tainted or self.touch(post)
            size, header = message.weigh(each)
            post.number = self.traffic.post(
                work.rank,
                -1 if each.peer is None else each.peer,
                size,
                sends=each.sends,
                step=call.step.index,
                header=header,
                group=group.name,
                begins=not posts,
            )
            posts.append(post)
        work.hold(posts)
        return posts

    def _match(self, post: matching.MessagePost) -> None:
        """Let a message meet its other side, or leave its sender if a buffer takes it.

        A send whose receive is not posted yet waits with a rendezvous. A buffer with room lets it
        pass at once, with a copy of its payload: the sender may write into the tensor again.
        """
        partner = self.mailbox.partner_of(post)
        if partner is not None:
            self._pass_on(*((post, partner) if post.message.sends else (partner, post)))
            return
        effects = message.buffer(post, self.semantics, self.mailbox.count_under_way)
        self.apply(self.ranks[post.rank], effects)

    def _pass_on(self, send: matching.MessagePost, receive: matching.MessagePost) -> None:
        """Let a message arrive: both ends are done, and the receiver holds what was sent.

        Where a backend does not look at tags (NCCL), the messages of two ranks meet in the order of
        posting. A pair whose tags differ is kept in `crossed`, for the trace to tell.
        """
        self.mailbox.meet(send, receive)
        self.traffic.meet(send.number, send.row, receive.number, receive.row)
        if send.message.tag != receive.message.tag:
            self.crossed.append((send, receive))
        self.apply(self.ranks[receive.rank], message.deliver(send, receive))

    # ------------------------------------------------------------------ calls of functions

    def _pauses(self, state: RankState, step: Step) -> bool:
        """Whether it matters what functions of other ranks do before a step of a rank.

        It does where one of them may touch a name that the step reads or writes, and before the
        rank shuts RPC down, which it does only when no call is left. A `wait` matters where a
        function stores into a tensor that work of the rank has in use, since the work ends there.

        All other steps are taken as if alone: it keeps the number of orders to try small.
        """
        if isinstance(step.operation, Departure) or self.procedures.is_open(state.rank, step):
            return True
        if not isinstance(step.operation, Waiting):
            return False
        written = self.procedures.find_stored(state.rank)
        return any(not written.isdisjoint(each.names) for each in state.open_accesses)

    def _lingers(self, state: RankState) -> bool:
        """Whether functions may run after a step is done and before the rank looks at its result.

        A rank whose tensor another one changes may not have returned yet when that goes on.
        """
        call = state.call
        assert call is not None
        return self.procedures.is_open(state.rank, call.step)

    def _ask(self, state: RankState, effect: Ask) -> None:
        """Let a call arrive; its function runs when its turn comes, at once where no step minds.

        The arguments are copied here, as pickling does it. A call whose function takes longer than
        its timeout has its time of return at once, so that the caller raises without waiting for
        the function, which runs nevertheless.
        """
        call = state.call
        assert call is not None
        function = self.plan.scenario.functions[effect.function]
        taint = buffers.find_taint(state, call)
        work = self._work(state, call)
        work.begun = True
        self.calls += 1
        asked = matching.FunctionCall(
            rank=state.rank,
            call=call,
            time_s=state.clock_s,
            to=effect.to,
            function=function,
            given=frozen(call.entry.arguments.get("args") or []),
            order=self.calls,
            tainted=taint,
        )
        work.hold([asked])
        self.asked.append(asked)
        asked.late = procedure.is_late(asked)
        if asked.late:
            asked.done_s = state.clock_s + function.takes_s
        if asked.keeps:
            self.apply(state, procedure.doubt(asked))
        if call.asynchronous:
            self._return(state, work)
        self._race_with_steps(asked)
        if not self.procedures.clashes(asked.to, function):
            self._perform(asked)
        self._go_on(state)

    def _perform(self, asked: matching.FunctionCall) -> None:
        """Run a function on its rank, between two of that rank's steps.

        It reads and writes the names of the rank that it runs on. What races with a step leaves the
        names that it writes undefined; what torch refuses is raised at the caller, which alone sees
        it. A rank that has died runs nothing, and its callers wait until their timeout.
        """
        state = self.ranks[asked.to]
        self.asked.remove(asked)
        if state.state == "died":
            return
        asked.performed = True
        result = procedure.perform(state, asked)
        asked.value, asked.failure = result.value, result.failure
        if result.refused and result.failure is not None:
            self.findings.append(name_failed(asked, result.failure))
        for name, cause in state.process.undefined_reads:
            buffers.note_undefined_read(state, asked.call, name, cause)
        state.process.undefined_reads.clear()
        if asked.raced:
            for name in asked.function.writes & state.process.held:
                state.process.undefined[name] = buffers.RACED
        if self.reads is not None:
            whole = frozenset(asked.function.sets) - asked.function.parts.keys()
            reads, writes = (
                frozenset((asked.to, name) for name in names)
                for names in (asked.function.reads, whole)
            )
            self.accesses.append((reads, writes))
        if asked.done_s is None:
            asked.done_s = asked.time_s + asked.function.takes_s
            caller = self.ranks[asked.rank]
            if self._go_on(caller):
                self._ready.append(caller)

    def _race_with_steps(self, asked: matching.FunctionCall) -> None:
        """Find steps of the called rank that have in use what a function touches."""
        state = self.ranks[asked.to]
        for access in list(procedure.collide(state, asked)):
            asked.raced = True
            self.findings.append(name_touch(state, asked, access))
            buffers.spoil(state, access)

    def _race_with_calls(self, state: RankState, call: Call) -> None:
        """Find calls that have arrived and whose functions touch what a step is about to use.

        The other order of :meth:`_race_with_steps`: there the step came first. Both are needed,
        since a function that has arrived may run before the step, during it, or after it.
        """
        work = matching.Work(rank=state.rank, call=call, start_s=state.clock_s, at=-1, number=-1)
        for asked in [each for each in self.asked if each.to == state.rank]:
            for access in list(procedure.touches(state, asked, buffers.uses(state, work))):
                asked.raced = state.racing = True
                self.findings.append(name_touch(state, asked, access))
                state.raced |= access.names

    def _give_results(self, state: RankState, call: Call, works: tuple[matching.Work, ...]) -> None:
        """Hold what the function of a call returned, where a step names it.

        It counts among the names that a race may bring: in another order the function may have
        returned another value, and the runs are compared by that.
        """
        for name in output_of(call.step.arguments):
            asked = works[0].posts[0] if works and works[0].posts else None
            if not isinstance(asked, matching.FunctionCall) or asked.value is None:
                continue
            if isinstance(asked.value, Undefined):
                state.process.scope.setdefault(name, None)
                state.process.undefined[name] = asked.value
            else:
                state.process.hold(name, frozen(asked.value))
            place = (state.rank, name)
            self.brought.add(place)
            if self.reads is not None:
                self.accesses.append((NOTHING, frozenset({place})))

    def _depart(self) -> None:
        """Let the ranks that have come to their end leave the RPC world, where none is blocked.

        `rpc.shutdown(graceful=True)` waits for every other rank. If one of them is blocked for
        good, none of the others returns from this step: they end without an event for it.
        """
        departing = [state for state in self.ranks if state.state == "departing"]
        stays = self.cut or any(state.state == "blocked" for state in self.ranks)
        for state in departing:
            state.state = "finished"
            if not stays:
                call = next(state.walker)
                state.call = call
                self.record(state, call, start_s=state.clock_s)

    def _wait(self, state: RankState, effect: Await) -> None:
        """Wait for works, and note at each where it is waited for.

        `waited_after` is how many works the rank has started by then. With it what a rank enters
        and what it waits for can be put into one order, from which rings of ranks are found
        (:mod:`torch_scenarios.reference.schedules`).
        """
        call = state.call
        assert call is not None
        at = (call.step.index, call.iteration)
        self.again += [(state.rank, at)] * effect.twice
        state.waiting = effect.works
        state.state = "blocked"
        for work in effect.works:
            work.waited = True
            work.waited_at = at
            work.waited_after = len(state.works)
        self._go_on(state)

    def _create(self, state: RankState, effect: Create) -> None:
        """Enter the creation of a group, which every rank of the world must enter.

        `new_group` is matched like a collective of its own: by how many groups its ranks have made
        so far. Rank 0 with `new_group([0, 1])` first and rank 1 with `new_group([1, 2])` first make
        the same group with different members, and this is what is found.
        """
        call = state.call
        assert call is not None
        creating = self.creations.create(
            call, state.clock_s, effect.group, effect.series, splits=effect.splits
        )
        work = self._work(state, call)
        work.begun = True
        work.hold([creating])
        self.creating[state.rank] = creating
        if effect.reused and creating.ordinal:
            self.creations.reused.append(creating)
        self.apply(state, creation.complete(self, creating))

    def _deny(self, state: RankState, _: Deny) -> None:
        assert state.call is not None
        self.creations.refused.append(state.call)

    def _refuse_late(self, _: RankState, effect: Late) -> None:
        effect.creating.gave_up, effect.creating.failed_s = effect.first, effect.at_s

    def _settle(self, _: RankState, effect: Leave) -> None:
        """Leave posts what their ranks will hold; they store it when they go on.

        The rule computes it for all members at once, while some of these may still have to pass.
        """
        for post, outcome in effect.outcomes:
            post.outcome = outcome
        if effect.settles is not None:
            effect.settles.settled = True

    def _keep(self, _: RankState, effect: Keep) -> None:
        """Copy what a rank gives, since it goes on before all have taken it.

        A member that passes a collective early may write into its tensor at once, as may the sender
        of a buffered message: the others must get what it gave.
        """
        post = effect.post
        if isinstance(post, matching.CollectivePost):
            post.entry = replace(post.entry, arguments=frozen_arguments(post.entry))
        elif isinstance(post, matching.MessagePost):
            post.payload = frozen(post.payload)
            self.early.append(post)

    def _spoil(self, _: RankState, effect: Spoil) -> None:
        """Note a disagreement of those who met.

        Raises HistoryMissingError where one of them had entered together with other ranks, and has
        passed: walked from the beginning it might have come last, and got nothing.
        """
        if any(each in self.entered and each.done_s is not None for each in effect.members):
            raise matching.HistoryMissingError
        effect.match.spoiled = effect.match.spoiled or effect.symptom.name
        self.opened |= effect.opened
        self.findings.append(effect.symptom)

    def _pass(self, _: RankState, effect: Pass) -> None:
        """Let a post be done: its rank goes on, and its stream, where nothing else is missing."""
        post: matching.Post = effect.post
        if post.done_s is None:
            post.done_s = effect.time_s
        state = self.ranks[post.rank]
        if isinstance(post, matching.CreationPost):
            del self.creating[post.rank]
            if post.failed_s is None:
                self.creations.enter(post)
                state.process.join(post.group)
        elif post.work is not None:
            self.streams.note(post.work)
        self._passed.append(state)

    def _abandon(self, state: RankState, effect: Abandon) -> None:
        """Withdraw what a rank gave up.

        None meets it any more, and its group is broken on that rank.

        To those who wait for the rank on that group it counts as gone, like one that raised or
        died.
        """
        for work in effect.works:
            state.broken.add(work.call.entry.group.key)
            for post in work.posts:
                if isinstance(post, matching.CollectivePost) and post.done_s is None:
                    post.match.withdraw(post)
                if isinstance(post, matching.MessagePost):
                    self.mailbox.withdraw(post)

    def _raise(self, state: RankState, effect: Raise) -> None:
        """Let a call raise: the rank goes on if its step expects that, else it ends here."""
        call, failure, start_s = state.call, effect.failure, state.clock_s
        assert call is not None
        if effect.at_s is not None:
            state.clock_s = max(start_s, effect.at_s)
        for name, cause in effect.spoilt.items():
            if cause is not None:
                state.process.undefined[name] = cause
        state.process.broken_off = call.whole is not None
        # Which of two errors a rank sees may depend on the time: that a peer is gone, or that its
        # own timeout is over. A failure has all kinds that it can be, and a step that states one of
        # them agrees.
        stated = calls.expect(state, call.step.expect)
        agreed = tuple(kind for kind in failure.kinds if kind in stated)
        if agreed:
            failure = replace(failure, kinds=agreed)
        state.add_event(
            call,
            start_s,
            state="raised",
            end_s=state.clock_s,
            failure=failure,
            written=tuple(effect.spoilt),
        )
        state.waiting = ()
        state.state = "ready" if agreed else "raised"

    def _end(self, state: RankState, effect: End) -> None:
        """End a rank in the midst of a step (a fault `exit` or `kill`).

        It returns from nothing any more.

        The event stays `running`, since the step never ended. What others wait for in vain is found
        when nothing moves any more.
        """
        assert state.call is not None
        state.state, state.died = "died", effect.how
        state.add_event(state.call, state.clock_s, state="running")

    def _go(self, state: RankState, effect: Go) -> None:
        """Note a step that the rank took by itself, and the time that it took."""
        call, start_s, scope = state.call, state.clock_s, state.process.scope
        assert call is not None
        operation = call.operation
        assert isinstance(operation, Local | Compound)
        whole = isinstance(operation, Compound)
        if whole:
            state.process.undefined |= compound.spoil(call, state.process.spoilt)
        buffers.note_reads(state, call)
        if self.brought:
            self.brought.difference_update((state.rank, name) for name in effect.before)
        if self.reads is not None:
            new = (name for name, held in effect.before.items() if scope.get(name) is not held)
            anew = frozenset((state.rank, name) for name in new)
            if anew:
                self.accesses.append((NOTHING, anew))
        stated: Mapping[str, float] = {"seconds": effect.seconds}
        if isinstance(operation, Local):
            stated = operation.costs(call.entry)
        if any(stated.values()):
            self.traffic.pause(state.rank, call.step.index, **stated)
        state.clock_s += effect.seconds
        if isinstance(operation, Compound):
            self.findings += compound.compare(state, call, operation)
            self.notes |= dict.fromkeys(operation.notes(call.entry))
            slack, said = operation.slack(call.entry), state.process.said
            self.record(state, call, start_s=start_s, slack=slack, said=said)
        else:
            self.record(state, call, start_s=start_s)

    _ways: ClassVar[Mapping[type[Any], Callable[[Simulation, RankState, Any], None]]] = {
        Abandon: _abandon,
        Ask: _ask,
        Begin: _begin,
        Create: _create,
        Deny: _deny,
        End: _end,
        Go: _go,
        Keep: _keep,
        Late: _refuse_late,
        Open: _open,
        Pass: _pass,
        Raise: _raise,
        Spoil: _spoil,
        Leave: _settle,
        Symptom: _find,
        Await: _wait,
    }

    # ------------------------------------------------------------------ how a call ends

    def _go_on(self, state: RankState) -> bool:
        """Complete the call that the rank is in, if nothing blocks it; whether it goes on.

        A rank waits for all of its works: one of three that is done leaves it where it is. A rank
        that could go on lingers instead where a function may still change the result before the
        rank looks at it.
        """
        if state.state != "blocked" or not all(work.done for work in state.waiting):
            return False
        if self.procedures and self._lingers(state):
            state.state = "lingering"
            return False
        state.state = "ready"
        return self._complete(state)

    def _complete(self, state: RankState) -> bool:
        """Finish the call that the rank was in; False if it raised and the rank has ended.

        The rank's time is the latest at which one of its works was done, and not the sum: works of
        one call run side by side. A work that was done only after the timeout raises, though all is
        there.
        """
        call = state.call
        assert call is not None
        works, state.waiting = state.waiting, ()
        start_s = state.clock_s
        late = waiting.exceed(works)
        if late is None and self.calls:
            late = self._fail(call, works, start_s)
        if late is not None:
            self._raise(state, late)
            return state.state == "ready"
        state.clock_s = max([start_s, *(work.done_s for work in works)])
        slack: dict[str, Any] = {}
        stored = [(work, work.call.targets) for work in works]
        for work, names in stored:
            slack |= self._store(state, work, names)
        self._note_traffic(state, works)
        buffers.spoil_raced(state)
        written = (
            stored[0][1]
            if len(stored) == 1
            else tuple(sorted({name for _, names in stored for name in names}))
        )
        if self.calls:
            self._give_results(state, call, works)
            written = tuple(sorted({*written, *output_of(call.step.arguments)}))
        self.record(state, call, start_s=start_s, written=written, slack=slack)
        return True

    def _fail(self, call: Call, works: tuple[matching.Work, ...], start_s: float) -> Raise | None:
        """Return what a rank raises that waits for calls of functions, or None.

        The first of them in the order of the `wait` counts, as `wait_all` in torch raises at the
        first.
        """
        for work in works:
            if work.posts and isinstance(work.posts[0], matching.FunctionCall):
                found = procedure.overdue(work, call, start_s)
                if found is not None:
                    return found
        return None

    def _store(
        self, state: RankState, work: matching.Work, names: tuple[str, ...]
    ) -> dict[str, Any]:
        """Store what a work brought into the names that it may write; returns bounds.

        `argument` is None for a received message, whose tensor is in the message itself. The bounds
        are by name, and only of names that are the whole tensor: a view of two rows is judged by
        the name of what it is a view of. In a run that moves roundings (`way`), what is stored is
        off by its bound.
        """
        slack: dict[str, Any] = {}
        buffers.give_back(state, work)
        for post in work.posts:
            for argument, value, bound in post.outcome:
                target = (
                    post.message.buffer
                    if argument is None
                    else work.call.entry.arguments.get(argument)
                )
                self._note_brought(state, names, post, argument)
                if target is not None:
                    exact = self.way is None or bound is None
                    brought = value if exact else self._off(value, bound, post)
                    if isinstance(brought, Undefined) and work.call.whole is not None:
                        state.process.spoilt = brought
                    store(state.process, names, target, brought)
                for name in work.call.roots.get(argument or "", ()):
                    if bound is not None and state.process.scope.get(name) is target:
                        slack[name] = bound
            post.outcome = []
        return slack

    def _note_brought(
        self, state: RankState, names: tuple[str, ...], post: matching.Post, argument: str | None
    ) -> None:
        """Note which names a receive fills, whole or in part, and that anyone may have sent it.

        A name stays noted until something else fills it whole. What a later step reads of it
        depends on the order of arrival.
        """
        scope = state.process.scope
        if argument is not None or not isinstance(post, matching.MessagePost):
            if self.brought:
                self.brought.difference_update((state.rank, name) for name in names)
            return
        buffer, anyone = post.message.buffer, post.message.peer is None
        for name in names:
            place, whole = (state.rank, name), scope.get(name) is buffer
            if whole and self.reads is not None:
                self.accesses.append((NOTHING, frozenset({place})))
            if anyone and (whole or len(names) == 1):
                self.brought.add(place)
            elif whole:
                self.brought.discard(place)

    def _off(self, value: Any, bound: Any, post: matching.Post) -> Any:
        """Return what a post brought; off by its slack, where the run is one that tries that."""
        if self.way is None or isinstance(value, Undefined):
            return value
        self.moved = self.moved or _is_any_true(bound)
        return move(value, bound, self.way, post.link)

    def _note_traffic(self, state: RankState, works: tuple[matching.Work, ...]) -> None:
        """Note that a rank returns from a step which completes these works.

        The cost replay needs it: a message that was sent at once costs its sender nothing until the
        step that waits for it.
        """
        for work in works:
            for post in work.posts:
                if isinstance(post, matching.MessagePost):
                    self.traffic.finish(state.rank, post.number, post.row)
                elif isinstance(post, matching.CollectivePost) and post.number >= 0:
                    self.traffic.finish(state.rank, post.number, None)

    def record(
        self,
        state: RankState,
        call: Call,
        *,
        start_s: float,
        written: tuple[str, ...] | None = None,
        slack: dict[str, Any] | None = None,
        said: tuple[IssuedCall, ...] | None = None,
    ) -> None:
        """Note that a rank took a step, and what its expectations look at.

        A call among those of a compound operation is noted with the whole, once that is done.
        """
        if call.whole is not None:
            state.process.undefined_reads.clear()
            return
        observed = state.process.observe(call.step)
        state.process.undefined_reads.clear()  # only the keys that this rank is asked for count
        raced = look(state, call, observed)
        if self.reads is not None and call.step.expect is not None:
            self.accesses.append(self.reads.find_stated(state.rank, call.step))
        if written is None:
            written = call.targets
        if self.procedures:
            written = self._find_written(state, call, written)
        state.add_event(
            call,
            start_s,
            end_s=state.clock_s,
            written=written,
            slack=slack or {},
            said=said,
            observed=observed,
            raced=raced,
        )

    def _find_written(
        self, state: RankState, call: Call, written: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return what a step may have stored into, and what functions may have by its end.

        A function that runs on the rank meanwhile changes names of that rank. These count as
        written by the step after which the change can be seen.
        """
        departs = isinstance(call.step.operation, Departure)
        procedures, rank = self.procedures, state.rank
        changed = procedures.find_changed(rank, call.step)
        if departs:
            changed = procedures.find_stored(rank)
        return tuple(sorted({*written, *(changed & state.process.held)}))

    # ------------------------------------------------------------------ what is left open

    # A choice is made only here, where nothing else moves: no step, no work on a stream, no
    # message.
    #
    #     ready ranks  -->  works on streams  -->  a choice  -->  waits in vain  -->  end
    #     (take steps)      (begin)                (one)          (raise)
    #
    # Each stage is entered when all before it have nothing left, and leads back to the first. So
    # what is found at rest is rest under every order but for the choices, and these are in
    # `choices`: a run is named by the list of what it chose, and can be made again.
    def _choose(self) -> bool:
        """Let one thing happen that the order of the steps leaves open.

        With functions of `rpc_sync` these are turns: a function runs, a rank takes its next step,
        or a receive takes a message. Without, only the next receive from anyone has a choice. What
        happens follows from the order that is tried: `schedule` first, then `_choosing`.
        """
        turns = self._list_turns() if self.procedures else []
        pairs = [] if turns else message.list_choices(self.mailbox)
        if not turns and not pairs:
            return self._meet_held_back()
        chosen = self._find_choice(turns or pairs)
        if chosen is None:
            self.cut = True
            return False
        mark, posted = len(self.accesses), self.mailbox.count
        self.choices.append(
            TurnChoice(
                options=tuple(turns), chosen=chosen, mark=mark, posted=posted, asked=self.calls
            )
            if turns
            else Choice(
                options=tuple(pairs),
                chosen=chosen,
                mark=mark,
                posted=posted,
                senders=tuple(sender_of(self, send) for send, _ in pairs),
            )
        )
        self._take(turns[chosen] if turns else Turn(rank=pairs[chosen][1].rank, pair=pairs[chosen]))
        return True

    def _find_choice(self, options: Sequence[Any]) -> int | None:
        """Return which option is next in the order that is tried; None where no order has one."""
        at = len(self.choices)
        if at < len(self.schedule):
            return self.schedule[at]
        if self._choosing is None:
            return 0
        return next(iter(self._choosing(self, options)), None)

    def _list_turns(self) -> list[Turn]:
        """Return what may happen next where functions run on ranks beside their own steps."""
        turns = [
            Turn(rank=asked.to, asked=asked)
            for asked in self.asked
            if self.ranks[asked.to].state != "died"
        ]
        turns += [
            Turn(rank=state.rank, step=state.pausing if state.state == "paused" else _step(state))
            for state in self.ranks
            if state.state in {"paused", "lingering"}
        ]
        pairs = message.list_choices(self.mailbox)
        return turns + [Turn(rank=receive.rank, pair=(send, receive)) for send, receive in pairs]

    def _take(self, turn: Turn) -> None:
        """Let one thing happen.

        A message arrives, a function runs, or a rank takes its next step.
        """
        if turn.pair is not None:
            self._pass_on(*turn.pair)
        elif turn.asked is not None:
            self._perform(turn.asked)
        else:
            state = self.ranks[turn.rank]
            lingers, state.state = state.state == "lingering", "ready"
            if not lingers or self._complete(state):
                self._ready.append(state)

    def _meet_held_back(self) -> bool:
        """Let a receive that names its sender take what an earlier one from anyone held back.

            rank 0   recv(any)   recv(from 1)
            rank 1   send        send

        The second receive must not have the first send while the first could take it. When no
        choice is left (the first has taken one, or can take none any more), the second takes what
        remains.
        """
        for receive in self.mailbox.receives:
            partner = self.mailbox.partner_of(receive)
            if partner is not None:
                self._pass_on(partner, receive)
                return True
        return False

    # ------------------------------------------------------------------ at the end

    def judge_the_present(self) -> None:
        """Find what those disagree on who entered a collective that not all of them entered."""
        self.apply(self.ranks[0], collective.judge_the_present(self))

    def dissolve(self) -> None:
        """Part what refers to each other, once all is known: it is freed at once, uncollected.

        A trace still names what works met, when it is asked.
        """
        self.matches.dissolve()
        self._choosing = None
        for state in self.ranks:
            state.process.storing = state.process.pauses = None
            for post in (post for work in state.works for post in work.posts):
                post.work = None
                if isinstance(post, matching.MessagePost) and post.message.sends:
                    post.partner = None


def _step(state: RankState) -> Step:
    assert state.call is not None
    return state.call.step


def _is_any_true(bound: Any) -> bool:
    return any(map(_is_any_true, bound)) if isinstance(bound, list) else bool(np.any(bound))


# -------------------------------------------------------------------------------------------------
# Which rule is asked for a step, by the shape of its operation.


def _act(run: Simulation, state: RankState, call: Call) -> Sequence[Effect]:
    assert isinstance(call.operation, Local | Compound)
    state.process.storing = partial(buffers.note_store, state, call)
    return local.act(run, state, call, call.operation)


def _make(run: Simulation, state: RankState, call: Call) -> Sequence[Effect]:
    assert isinstance(call.operation, GroupCreation)
    group = call.operation.group(call.entry, run.plan.scenario.timeout_s)
    run.ledger.account.spend(creation.price(group), call.step.mark)
    return creation.create(run, state, call, call.operation, group)


Rule: TypeAlias = Callable[[Simulation, RankState, Call], Sequence[Effect]]

_SHAPES: tuple[tuple[type[Operation], Rule], ...] = (
    (Local, _act),
    (Collective, collective.enter),
    (PointToPoint, message.post),
    (Waiting, waiting.wait),
    (GroupCreation, _make),
    (Compound, _act),
    (RemoteCall, procedure.ask),
)

#: with one of these as the last effect, a call that was checked does nothing else
_STOPS = frozenset({Raise, Begin})


@cache
def _rule_of(shape: type[Operation]) -> Rule:
    """Return the rule for a call of an operation's class."""
    return next(rule for each, rule in _SHAPES if issubclass(shape, each))
