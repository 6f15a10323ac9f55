"""One run of all ranks in one process, under one reading of the semantics and one schedule.

Deterministic: ranks advance in order, each as far as it can; virtual time passes only by `sleep`
and by waiting for others. A *reading* says how much a correct implementation may let pass:

* sends are a rendezvous (they wait for the receiver), or buffered;
* a rank leaves a collective as soon as nothing it *needs* is missing, or (strict) only once every
  member has entered.

What stands still at the end is left in the state: :mod:`runner.reference.faults` explains it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from runner.language.limits import DEFAULT, Limits
from runner.operations.base import (
    Collective,
    Ending,
    GroupCreation,
    Local,
    PointToPoint,
    ProgramError,
    Waiting,
)
from runner.program import Process
from runner.reference import buffers, raising
from runner.reference.findings import Finding
from runner.reference.ledger import Ledger
from runner.reference.matching import (
    Creating,
    Creations,
    Joining,
    Mailbox,
    Meetings,
    Posted,
    Work,
)
from runner.reference.results import delivered, settle
from runner.reference.state import RankState, Reading
from runner.reference.values import frozen, snapshot, store, tainted
from runner.trace import Event, Failure

if TYPE_CHECKING:
    from runner.evaluation import Arrays
    from runner.operations.base import Operation
    from runner.plan import Plan
    from runner.program import Call


class Simulation:
    """The state of all ranks, advanced until nothing moves."""

    def __init__(
        self,
        plan: Plan,
        arrays: Arrays,
        *,
        reading: Reading,
        schedule: tuple[int, ...] = (),
        limits: Limits = DEFAULT,
    ) -> None:
        """Bind every rank's initial values; raises ScenarioError where one cannot be computed."""
        self.plan = plan
        self.reading = reading
        self.schedule = schedule
        #: each receive from anyone that had a choice, and the messages that it could take
        self.choices: list[tuple[Posted, tuple[Posted, ...]]] = []
        self.meetings = Meetings()
        self.mailbox = Mailbox()
        self.creations = Creations()
        self.findings: list[Finding] = []
        self.opened: set[str] = set()
        #: whether a rank left a collective before every member had entered
        self.hurried = False
        ledger = Ledger(limits)
        self._ledger = ledger
        self._ready: deque[RankState] = deque()
        self.ranks: list[RankState] = []
        for rank in range(plan.world_size):
            process = Process(plan, rank, arrays)
            state = RankState(rank=rank, process=process, walker=process.walk(), ledger=ledger)
            ledger.keep((process.scope[name] for name in process.held), plan.scenario.mark)
            state.initial = {name: snapshot(process, name) for name in sorted(process.held)}
            ledger.keep(state.initial.values(), plan.scenario.mark)
            self.ranks.append(state)
            self._ready.append(state)

    # ------------------------------------------------------------------ the loop

    def run(self) -> Simulation:
        """Advance until every rank has ended or stands still for good."""
        self._create_groups()
        while True:
            while self._ready:
                self._advance(self._ready.popleft())
            if not (self._choose_message() or raising.give_up(self)):
                return self

    def _create_groups(self) -> None:
        """Torch refuses a wrong group on every rank, before step 1."""
        for creation in self.plan.creations:
            if creation.refused is None:
                continue
            label = f"{creation.kind} {creation.spec.name}"
            place = f" ({creation.spec.mark.short})" if creation.spec.mark else ""
            self.findings.append(
                Finding(
                    name="invalid_argument",
                    prose=f"{label}{place}: {creation.refused}",
                    ranks=tuple(range(self.plan.world_size)),
                    kind="invalid_argument",
                )
            )
            failure = Failure(kinds=("invalid_argument",), message=creation.refused)
            for state in self.ranks:
                state.events.append(
                    Event(index=-1, label=label, state="raised", end_s=0.0, failure=failure)
                )
                state.state = "raised"
            self._ready.clear()
            return

    def _advance(self, state: RankState) -> None:
        """Take the rank's steps until it blocks or ends."""
        while state.state == "ready":
            self._ledger.step(state.call.step.mark if state.call else None)
            call = next(state.walker, None)
            buffers.note_reads(self, state, call)
            if call is None:
                state.state = "finished"
                state.call = None
                return
            state.call = call
            self._take(state, call)

    def _take(self, state: RankState, call: Call) -> None:
        operation = call.operation
        if operation is None:
            self._record(state, call, start_s=state.clock_s)
            return
        outside = call.entry.group_rank < 0
        if outside and isinstance(operation, Collective):
            # torch warns and returns None
            self._record(state, call, start_s=state.clock_s)
            return
        refusal = operation.refuse(call.entry)
        if refusal is not None:
            raising.refused(self, state, call, refusal)
            return
        if raising.unsupported(state, call):
            return
        buffers.check(self, state, call)
        for shape, start in _STARTS:
            if isinstance(operation, shape):
                start(self, state, call, operation)
                return

    # ------------------------------------------------------------------ the shapes of operations

    def _local(self, state: RankState, call: Call, operation: Local) -> None:
        start_s = state.clock_s
        try:
            operation.run(state.process, call.entry)
        except Ending as ending:
            state.state, state.died = "died", ending.how
            state.add_event(call, start_s, state="running")
            return
        except ProgramError as error:
            raising.fail(state, call, Failure(kinds=("other",), message=str(error)), start_s)
            return
        buffers.note_reads(self, state, call)
        state.clock_s += operation.duration_s(call.entry)
        self._record(state, call, start_s=start_s)

    def _collective(self, state: RankState, call: Call, operation: Collective) -> None:
        joining = self.meetings.join(call, state.clock_s)
        joining.tainted = tainted(state.process, call)
        self._start(state, call, [joining])
        self.meet(joining, operation)
        self._go_on(state)

    def _messages(self, state: RankState, call: Call, operation: PointToPoint) -> None:
        posts: list[Posted] = []
        for message in operation.messages(call.entry):
            group = message.group or call.entry.group
            post = self.mailbox.post(call, group, message, state.clock_s)
            if message.sends:
                post.tainted = tainted(state.process, call)
                if self.reading.buffered:
                    post.payload = frozen(post.payload)
            posts.append(post)
        self._start(state, call, posts)
        for post in posts:
            if post.message.sends and self.reading.buffered:
                post.done_s = post.time_s
            partner = self.mailbox.partner_of(post)
            if partner is not None:
                self.pass_on(*((post, partner) if post.message.sends else (partner, post)))
        self._go_on(state)

    def _creation(self, state: RankState, call: Call, operation: GroupCreation) -> None:
        ordinal = self.creations.ordinal(state.rank)
        group = operation.group(call.entry, ordinal, self.plan.scenario.timeout_s)
        creating = self.creations.create(call, state.clock_s, group)
        self._start(state, call, [creating])
        here = self.creations.at(ordinal)
        for other in list(here.values()):
            if other.done_s is None and self._agreed(other, here):
                members = other.group.ranks if other.rank in other.group.ranks else (other.rank,)
                other.done_s = max(here[rank].time_s for rank in members)
                self.ranks[other.rank].process.join(other.group)
                self._wake(self.ranks[other.rank])

    def _agreed(self, creating: Creating, here: dict[int, Creating]) -> bool:
        """A non-member passes at once; a member needs every other member with the same list."""
        members = creating.group.ranks
        if creating.rank not in members:
            return True
        return all(rank in here and here[rank].group.ranks == members for rank in members)

    def _waiting(self, state: RankState, call: Call, operation: Waiting) -> None:
        works = tuple(
            state.handles[name] for name in operation.handles(call.entry) if name in state.handles
        )
        state.waiting = works
        state.state = "blocked"
        for work in works:
            work.waited = True
            work.waited_at = (call.step.index, call.iteration)
        self._go_on(state)

    def _start(self, state: RankState, call: Call, posts: list[Any]) -> None:
        work = Work(rank=state.rank, call=call, start_s=state.clock_s, posts=posts)
        for post in posts:
            post.work = work
        state.works.append(work)
        if call.asynchronous:
            work.handle = call.step.handle
            if work.handle is not None:
                state.handles[work.handle] = work
                state.process.handles.add(work.handle)
            buffers.take(state, call, work)
            self._record(state, call, start_s=state.clock_s, written=())
        else:
            work.waited = True
            state.waiting = (work,)
            state.state = "blocked"

    # ------------------------------------------------------------------ meeting

    def meet(self, joining: Joining, operation: Collective) -> None:
        """Let those pass who miss nobody any more, and give them what they hold afterwards."""
        meeting = joining.meeting
        joined = meeting.of(operation.name)
        if len(joined) == meeting.group.size:
            last_s = max(other.time_s for other in joined.values())
            settle(self, meeting, joining, joined)
            if self.reading.strict and meeting.spoiled:
                return
            for other in list(joined.values()):
                self._pass(other, last_s)
            return
        if self.reading.strict:
            return
        if len(operation.needs(joining.entry)) < meeting.group.size:
            meeting.hopeful.append(joining)
        for other in list(meeting.hopeful):
            assert isinstance(other.call.operation, Collective)  # noqa: S101 -- only these join
            needs = other.call.operation.needs(other.entry)
            here = meeting.of(other.call.operation.name)
            if needs <= here.keys():
                self.hurried = True
                meeting.hopeful.remove(other)
                settle(self, meeting, other, here)
                self._pass(other, max([other.time_s, *(here[at].time_s for at in needs)]))

    def _pass(self, joining: Joining, time_s: float) -> None:
        if joining.done_s is None:
            joining.done_s = time_s
            self._wake(self.ranks[joining.rank])

    def pass_on(self, send: Posted, receive: Posted) -> None:
        """Let a message arrive."""
        self.mailbox.meet(send, receive)
        delivered(self, send, receive)
        time_s = max(send.time_s, receive.time_s)
        for post in (send, receive):
            if post.done_s is None:
                post.done_s = time_s
            self._wake(self.ranks[post.rank])

    def _choose_message(self) -> bool:
        """Let the next receive from anyone take one of the messages that can really reach it."""
        for receive in self.mailbox.receives:
            candidates = self.mailbox.candidates(receive) if receive.message.peer is None else []
            if candidates:
                at = len(self.choices)
                chosen = self.schedule[at] if at < len(self.schedule) else 0
                self.choices.append((receive, tuple(candidates)))
                self.pass_on(candidates[chosen], receive)
                return True
        # a specific receive that an earlier receive from anyone had held back
        for receive in self.mailbox.receives:
            partner = self.mailbox.partner_of(receive)
            if partner is not None:
                self.pass_on(partner, receive)
                return True
        return False

    # ------------------------------------------------------------------ going on

    def resume(self, state: RankState) -> None:
        """Let a rank that raised, and whose step expected that, take its next step."""
        self._ready.append(state)

    def _wake(self, state: RankState) -> None:
        if state.state == "blocked" and all(work.done for work in state.waiting):
            state.state = "ready"
            if self._complete(state):
                self._ready.append(state)

    def _go_on(self, state: RankState) -> None:
        """Complete the call that the rank just made, if nothing blocks it."""
        if state.state == "blocked" and all(work.done for work in state.waiting):
            state.state = "ready"
            self._complete(state)

    def _complete(self, state: RankState) -> bool:
        """Finish the call that the rank stood in; False if it raised and the rank has ended."""
        call = state.call
        assert call is not None  # noqa: S101 -- a blocked rank stands in a call
        works, state.waiting = state.waiting, ()
        start_s = state.clock_s
        late = raising.too_late(works)
        state.clock_s = max([state.clock_s, *(work.done_s for work in works)])
        if late is not None:
            state.clock_s = late.at_s
            raising.fail(state, call, late.failure, start_s)
            return state.state == "ready"
        slack: dict[str, Any] = {}
        written = {name for work in works for name in work.call.written}
        for work in works:
            slack.update(self._apply(state, work))
        buffers.spoil_raced(state)
        self._record(state, call, start_s=start_s, written=tuple(sorted(written)), slack=slack)
        return True

    def _apply(self, state: RankState, work: Work) -> dict[str, Any]:
        """Store what the work brought; returns the slack by tensor name."""
        slack: dict[str, Any] = {}
        buffers.give_back(state, work)
        for post in work.posts:
            for argument, value, bound in post.outcome:
                target = (
                    post.message.buffer
                    if argument is None
                    else work.call.entry.arguments.get(argument)
                )
                if target is not None:
                    store(state.process, work.call.written, target, value)
                for name in work.call.roots.get(argument or "", ()):
                    if bound is not None and state.process.scope.get(name) is target:
                        slack[name] = bound
            post.outcome = []
        return slack

    # ------------------------------------------------------------------ events

    def _record(
        self,
        state: RankState,
        call: Call,
        *,
        start_s: float,
        written: tuple[str, ...] | None = None,
        slack: dict[str, Any] | None = None,
    ) -> None:
        observed = state.process.observe(call.step)
        buffers.note_reads(self, state, call)
        state.add_event(
            call,
            start_s,
            end_s=state.clock_s,
            written=call.written if written is None else written,
            slack=slack or {},
            observed=observed,
        )


_STARTS: tuple[tuple[type[Operation], Any], ...] = (
    (Local, Simulation._local),  # noqa: SLF001 -- the table of this class's own methods
    (Collective, Simulation._collective),  # noqa: SLF001
    (PointToPoint, Simulation._messages),  # noqa: SLF001
    (Waiting, Simulation._waiting),  # noqa: SLF001
    (GroupCreation, Simulation._creation),  # noqa: SLF001
)
