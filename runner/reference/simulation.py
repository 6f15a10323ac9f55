"""One run of all ranks in one process, under one reading of the semantics and one schedule.

Deterministic: ranks advance in order, each as far as it can; virtual time passes only by `sleep`
and by waiting for others. A *reading* says how much a correct implementation may let pass:

* sends are a rendezvous (they wait for the receiver), or buffered;
* a rank leaves a collective as soon as nothing it *needs* is missing, or (strict) only once every
  member has entered;
* what is called begins at once, or behind what was called before it
  (:mod:`runner.reference.streams`).

What stands still at the end is left in the state: :mod:`runner.reference.faults` explains it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from runner.language.limits import DEFAULT, Limits
from runner.operations.base import Collective
from runner.program import Process
from runner.reference import buffers, completing, raising, starting
from runner.reference.choices import Choice, sender_of
from runner.reference.creations import Creations
from runner.reference.delivering import delivered
from runner.reference.ledger import Ledger
from runner.reference.mailbox import Mailbox
from runner.reference.meetings import Meetings
from runner.reference.needing import needs
from runner.reference.results import settle
from runner.reference.state import RankState
from runner.reference.streams import Streams
from runner.reference.values import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from runner.arrays import Arrays
    from runner.call import Call
    from runner.plan import Plan
    from runner.reference.findings import Finding
    from runner.reference.posts import Creating, Joining, Post, Posted
    from runner.reference.reading import Reading
    from runner.reference.snapshots import Access, Place, Reads

    #: (the run, the options as send and receive) -> which of them to try, in order
    Choosing: TypeAlias = Callable[["Simulation", Sequence[tuple[Posted, Posted]]], Sequence[int]]


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
        way: int | None = None,
        choosing: Choosing | None = None,
        reads: Reads | None = None,
    ) -> None:
        """Bind every rank's initial values; raises ScenarioError where one cannot be computed.

        `way` lets every reduction be off by its slack (:mod:`runner.reference.drifting`).
        `choosing` is asked, at a choice that the schedule leaves open, which options to try; with
        none of them the run is `cut` there. `reads` lets the run note what is read and written.
        """
        self.plan = plan
        self.reading = reading
        self.schedule = schedule
        #: what each receive from anyone could take, and what it took
        self.choices: list[Choice] = []
        self.cut = False
        self.reads = reads
        #: what ranks read and then write whole, in order; kept where `reads` is given
        self.accesses: list[Access] = []
        #: the names that hold what a receive from anyone brought last
        self.brought: set[Place] = set()
        self._choosing = choosing
        self.meetings = Meetings()
        self.mailbox = Mailbox(reading)
        self.streams = Streams(reading)
        self.creations = Creations()
        #: the creations that have yet to pass
        self.creating: list[Creating] = []
        self.findings: list[Finding] = []
        self.opened: set[str] = set()
        #: whether a rank left a collective before every member had entered
        self.hurried = False
        self.way = way
        #: whether some result was off by its slack
        self.moved = False
        #: the sends that a buffer took before their receive was posted
        self.early: list[Posted] = []
        #: where a rank waits again for a message's work: its place
        self.again: list[tuple[int, tuple[int, tuple[int, ...]]]] = []
        #: messages that met although their tags differ: send and receive
        self.crossed: list[tuple[Posted, Posted]] = []
        ledger = Ledger(limits)
        self.ledger = ledger
        self._ready: deque[RankState] = deque()
        self.ranks: list[RankState] = []
        for rank in range(plan.world_size):
            process = Process(plan, rank, arrays, ledger=ledger)
            state = RankState(rank=rank, process=process, walker=process.walk(), ledger=ledger)
            state.initial = {name: snapshot(process, name) for name in sorted(process.held)}
            self.ranks.append(state)
            self._ready.append(state)

    # ------------------------------------------------------------------ the loop

    def run(self) -> Simulation:
        """Advance until every rank has ended or stands still for good."""
        starting.create_groups(self)
        while True:
            while self._ready:
                self._advance(self._ready.popleft())
            if self.streams.advance() or self._choose_message():
                continue
            if self.cut or not raising.give_up(self):
                return self

    def _advance(self, state: RankState) -> None:
        """Take the rank's steps until it blocks or ends."""
        while state.state == "ready":
            self.ledger.step(state.call.step.mark if state.call else None)
            call = next(state.walker, None)
            buffers.note_reads(self, state, call)
            if call is None:
                state.state = "finished"
                state.call = None
                return
            state.call = call
            if self.reads is not None:
                self.accesses.append(self.reads.given(state.rank, call.step))
            self._take(state, call)

    def _take(self, state: RankState, call: Call) -> None:
        operation = call.operation
        if operation is None:
            completing.record(self, state, call, start_s=state.clock_s)
            return
        outside = call.entry.group_rank < 0
        if outside and isinstance(operation, Collective):
            # torch warns and returns None
            completing.record(self, state, call, start_s=state.clock_s)
            return
        if raising.on_destroyed(self, state, call):
            return
        refusal = operation.refuse(call.entry)
        if refusal is not None:
            if not raising.refused(self, state, call, refusal):
                starting.start_refused(self, state, call, refusal)
            return
        if raising.unsupported(state, call):
            return
        state.racing = buffers.check(self, state, call)
        starting.start(self, state, call, operation)

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
        if len(needs(operation, joining.entry)) < meeting.group.size:
            meeting.hopeful.append(joining)
        for other in list(meeting.hopeful):
            assert isinstance(other.call.operation, Collective)  # noqa: S101 -- only these join
            missed = needs(other.call.operation, other.entry)
            here = meeting.of(other.call.operation.name)
            if missed <= here.keys():
                self.hurried = True
                meeting.hopeful.remove(other)
                settle(self, meeting, other, here)
                self._pass(other, max([other.time_s, *(here[at].time_s for at in missed)]))

    def _pass(self, joining: Joining, time_s: float) -> None:
        if joining.done_s is None:
            joining.done_s = time_s
            self.passed(joining)

    def pass_on(self, send: Posted, receive: Posted) -> None:
        """Let a message arrive."""
        self.mailbox.meet(send, receive)
        if send.message.tag != receive.message.tag:
            self.crossed.append((send, receive))
        delivered(self, send, receive)
        time_s = max(send.time_s, receive.time_s)
        for post in (send, receive):
            if post.done_s is None:
                post.done_s = time_s
            self.passed(post)

    def _choose_message(self) -> bool:
        """Let the next receive from anyone take one of the messages that can really reach it.

        Or let a receive that names the sender, although posted later, take it: torch promises no
        order between the two, and Gloo tells a sender of receives that name it alone.
        """
        options = [
            pair
            for receive, candidates in self.mailbox.open()
            for pair in self._pairs(receive, candidates)
        ]
        if options:
            chosen = self._chosen(options)
            if chosen is None:
                self.cut = True
                return False
            self.choices.append(
                Choice(
                    options=tuple(options),
                    chosen=chosen,
                    mark=len(self.accesses),
                    posted=self.mailbox.count,
                    senders=tuple(sender_of(self, send) for send, _ in options),
                )
            )
            self.pass_on(*options[chosen])
            return True
        # a specific receive that an earlier receive from anyone had held back
        for receive in self.mailbox.receives:
            partner = self.mailbox.partner_of(receive)
            if partner is not None:
                self.pass_on(partner, receive)
                return True
        return False

    def _pairs(self, receive: Posted, candidates: list[Posted]) -> Iterator[tuple[Posted, Posted]]:
        """Yield which message may be taken here, by this receive or one that names its sender."""
        yield from ((send, receive) for send in candidates)
        for send in candidates:
            named = self.mailbox.named(send)
            if named is not None:
                yield send, named

    def _chosen(self, options: list[tuple[Posted, Posted]]) -> int | None:
        at = len(self.choices)
        if at < len(self.schedule):
            return self.schedule[at]
        if self._choosing is None:
            return 0
        return next(iter(self._choosing(self, options)), None)

    # ------------------------------------------------------------------ going on

    def halt(self) -> None:
        """Let no rank take a step: the program ended before the first."""
        self._ready.clear()

    def resume(self, state: RankState) -> None:
        """Let a rank that raised, and whose step expected that, take its next step."""
        self._ready.append(state)

    def passed(self, post: Post) -> None:
        """Let go on what waited for a post that may pass now: its rank, and its stream."""
        if post.work is not None:
            self.streams.note(post.work)
        self.wake(self.ranks[post.rank])

    def wake(self, state: RankState) -> None:
        """Let a rank go on whose call has nothing left to wait for."""
        if state.state == "blocked" and all(work.done for work in state.waiting):
            state.state = "ready"
            if completing.complete(self, state):
                self._ready.append(state)

    def go_on(self, state: RankState) -> None:
        """Complete the call that the rank just made, if nothing blocks it."""
        if state.state == "blocked" and all(work.done for work in state.waiting):
            state.state = "ready"
            completing.complete(self, state)
