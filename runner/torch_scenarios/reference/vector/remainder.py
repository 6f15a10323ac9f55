"""What cohorts leave over: ranks at rest or before a step of their own, each to be walked on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torch_scenarios.errors import ScenarioError
from torch_scenarios.expressions.arrays import Arrays
from torch_scenarios.expressions.values import names_of
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.process import Call, Process
from torch_scenarios.model.scenario import steps_of
from torch_scenarios.model.traffic import Traffic
from torch_scenarios.operations.base import Collective, Group, PointToPoint, Waiting
from torch_scenarios.reference import buffers, matching
from torch_scenarios.reference.matching import (
    CollectiveMatch,
    CollectiveMatches,
    CollectivePost,
    Mailbox,
    MessagePost,
)
from torch_scenarios.reference.state import Ledger, RankState, frozen
from torch_scenarios.reference.vector.call import (
    CollectiveColumn,
    Instance,
    Messages,
    PostColumn,
    WaitingRanks,
    WorkColumn,
)
from torch_scenarios.reference.vector.cohort import LetBindings, View, leave, make_list
from torch_scenarios.reference.vector.engine import CohortState
from torch_scenarios.reference.vector.record import Batch, ColumnEvents, ColumnRecord, Replays

# -------------------------------------------------------------------------------------------------
# From columns to ranks: what a rank holds, where it is, and what it has under way.
#
#     cohorts   x [1024, 4]   a work of 1,024 ranks      a stand of 1,023 ranks
#     rank 5    x [4]         its work, with its posts   finished
#
# What the ranks did before stays in columns (:class:`ColumnEvents`); what was under way is made
# anew for each rank from its call, which is evaluated once more where it stands in the program.


class Remainder:
    """The ranks that cohorts leave over, as states that can be walked on.

    Nothing in it is changed by walking: it serves for as many runs as are wanted (the strict and
    the buffered reading, each order of arrival).

        turn         1   2   3   4   5
        ranks 0-2    x   x   x   x   blocked in a barrier
        rank 3       x   x   x   (parked before turn 4, which has no column)

    `state(3, ...)` gives rank 3 with its tensors as arrays of its own, its walker before turn 4,
    and its works with posts made anew. `ledger` and `traffic` go on from what was counted by then.

    To begin at the start would be simpler. It took 152 s in place of 41 s for 1,000 rounds on 1,024
    ranks of which one leaves out the last barrier (decision 42).
    """

    def __init__(
        self,
        plan: Plan,
        cohort_state: CohortState,
        again: Callable[[NDArray[np.bool_]], ColumnRecord],
    ) -> None:
        """Take what is left. Raises CohortError where a rank cannot be walked on from there."""
        self._plan = plan
        self._cohort_state = cohort_state
        self._replays = Replays(cohort_state.record, again)
        self._posted: dict[int, Counter[tuple[Any, ...]]] = {}
        self._entered: dict[tuple[str, int], int] = {}
        #: the index of the step that names a number
        self._named = {
            name: step.index
            for step in steps_of(plan.scenario.steps)
            if step.operation is not None
            for name in step.operation.numbers(step.arguments)
        }
        self._ready: dict[int, int] = {
            rank: number for number, active in cohort_state.left for rank in active.ranks.tolist()
        }
        self._open: dict[int, list[tuple[WorkColumn, int]]] = {}
        self._police()
        for work in cohort_state.blocked_ranks.open_works:
            for row in np.flatnonzero(~(work.waited & work.stored)).tolist():
                rank = int(work.active.ranks[row])
                self._open.setdefault(rank, []).append((work, row))

    def _police(self) -> None:
        """Raise CohortError for what a rank alone does not tell.

        That is where loops are, if ranks name what they count through, or if they count through a
        value twice; and what a message has met whose handle is lost.
        """
        loops = (step.over for step in steps_of(self._plan.scenario.steps) if step.over is not None)
        named = any(names_of(over) & self._plan.numbers for over in loops)
        batches = self._cohort_state.record.batches
        numbers = {batch.instance.number for batch in batches}
        places = {(batch.instance.step.index, batch.instance.iteration) for batch in batches}
        if named or len(places) < len(numbers) or any(self._find_lost()):
            leave("a loop over named numbers, or through a value twice, or a lost message")

    def _find_lost(self) -> Iterator[bool]:
        """Yield, for each open work, whether it is messages of which some rank lost the handle."""
        blocked_ranks, finished = self._cohort_state.blocked_ranks, self._cohort_state.finished
        for work in blocked_ranks.open_works:
            dropped = ~work.waited & blocked_ranks.find_dropped(work, finished)
            yield bool(dropped.any()) and isinstance(work.instance.step.operation, PointToPoint)

    # ------------------------------------------------------------------ what came before

    def ledger(self) -> Ledger:
        """Return a ledger that goes on from what the ranks have done."""
        return self._cohort_state.ledger.fork()

    def traffic(self) -> Traffic:
        """Return what went between the ranks, to be added to."""
        return self._cohort_state.record.traffic.copy()

    def position(self, key: str, rank: int) -> int:
        """Return how many collectives a rank has entered on a group.

        The cohorts count by the name of groups, the walk by a group's key. All counts are turned
        over when the first is asked for, since a run asks for most of them.
        """
        if not self._entered:
            for name, counts in self._cohort_state.collectives.entered.items():
                numbers = self._cohort_state.memory.group_numbers(name)
                for each in np.flatnonzero(counts).tolist():
                    group = self._cohort_state.memory.groups[name][int(numbers[each])]
                    self._entered[group.key, each] = int(counts[each])
            self._entered.setdefault(("", -1), 0)
        return self._entered.get((key, rank), 0)

    def count_posted(self, ends: tuple[str, int, int | None, int, bool]) -> int:
        """Return how many messages a rank has posted to or from these ends.

        `ends` are the key of the group, the rank, its peer (None for anyone), the tag, and whether
        it sends. The number goes on in the walk, so that the third message of a link is `#7:2`
        there too, although the cohorts counted the first two. What the rank is blocked in is not in
        the record yet, and is counted from its stand; a `wait` posts nothing.
        """
        rank = ends[1]
        if rank not in self._posted:
            counted: Counter[tuple[Any, ...]] = Counter()
            for batch in self._cohort_state.record.of(rank):
                for link in batch.description.links:
                    found = link.ends(batch, rank)
                    if found is not None:
                        counted[found] += 1
            stand = self._cohort_state.blocked_ranks.stand_of(rank)
            if stand is not None and not isinstance(stand.instance.step.operation, Waiting):
                for link in stand.description.links:
                    found = link.ends(stand, rank)
                    if found is not None:
                        counted[found] += 1
            self._posted[rank] = counted
        key, _, peer, tag, sends = ends
        return self._posted[rank][key, sends, peer, tag]

    def find_entered(self, key: str, rank: int) -> Iterator[Call]:
        """Yield the collectives that a rank has behind it on a group."""
        for batch in self._cohort_state.record.of(rank):
            if isinstance(batch.instance.step.operation, Collective):
                link = batch.description.links[0]
                if link.keys[int(link.numbers[rank])] == key:
                    yield self._make_call(batch, rank)

    def find_created(self, rank: int) -> Iterator[tuple[Call, Group]]:
        """Yield the creations that a rank has behind it, each with the group."""
        batches = self._cohort_state.record.creations
        for batch, group in zip(batches, self._cohort_state.memory.created, strict=True):
            yield self._make_call(batch, rank), group

    def _make_call(self, batch: Batch, rank: int) -> Call:
        """Return a call that a rank has behind it, as far as its label shows it."""
        step = batch.instance.step
        return Call(
            step=step,
            iteration=batch.instance.iteration,
            operation=step.operation,
            entry=batch.entry(self._cohort_state.memory, rank),
            mark=step.mark,
        )

    # ------------------------------------------------------------------ one rank

    def _name(self, process: Process, instance: Instance, until: int) -> None:
        """Let a process know the numbers that its rank has named before a step, and its loops."""
        for name, value in instance.variables.items():
            number = value.of(process.rank) if isinstance(value, LetBindings) else value
            # Cohorts may have evaluated a number before any rank came to the step that names it. A
            # rank before that step must not know it yet.
            early = (
                name in self._cohort_state.early_numbers and self._named.get(name, until) >= until
            )
            if number is not None and not early:
                process.scope[name] = number

    def state(self, rank: int, arrays: Arrays, ledger: Ledger) -> RankState:
        """Return a rank where it stands, with nothing under way yet.

        Its tensors are copies, for the columns serve other runs as well. A rank that is ready has a
        walker that begins after the last step it took; one that is blocked gets its walker by
        :meth:`enter`, when the call is known that it is blocked in.
        """
        process = Process(self._plan, rank, arrays, initialise=False, ledger=ledger)
        scenario, memory = self._plan.scenario, self._cohort_state.memory
        for name in (*self._plan.introduced, *scenario.tensors, *scenario.objects):
            process.scope.setdefault(name, None)
        for name, column in memory.columns.items():
            if column.held[rank]:
                process.hold(name, frozen(column.own(rank)))
        for name, values in memory.ragged.items():
            if values[rank] is not None:
                process.hold(name, frozen(values[rank]))
        models = {name: frozen(value) for name, value in process.train().items()}
        for group in memory.created:
            process.join(group)
        events = ColumnEvents(self._replays, rank, models=models)
        state = RankState(
            rank=rank,
            process=process,
            walker=iter(()),
            ledger=ledger,
            events=events,
            initial=events.initial(),
            links=events.links,
            truncated=rank in self._plan.scenario.truncated,
        )
        if rank in self._ready:
            number = self._ready[rank]
            before = self._cohort_state.instance(number - 1) if number else None
            if before is not None:
                self._name(process, before, before.step.index + 1)
            place = (before.step.index, before.iteration) if before else None
            state.walker = process.walk(after=place)
        elif not self._cohort_state.finished[rank]:
            state.state = "blocked"
        else:
            state.state = "finished"
        return state

    def enter(
        self, state: RankState, matches: CollectiveMatches, mailbox: Mailbox
    ) -> list[CollectivePost | MessagePost]:
        """Let a rank have under way what it has; returns what waits for others.

        Works are made first, in the order of their calls, and then the posts of each, which are
        numbered over all ranks of a work. A handle whose work is over stays valid, as in torch: the
        rank may wait for it again. What the rank is blocked in becomes its call, and the walk goes
        on behind it.
        """
        stand = self._cohort_state.blocked_ranks.stand_of(state.rank)
        found = list(self._open.get(state.rank, ()))
        known = {id(work) for work, _ in found}
        if stand is not None:
            at = np.asarray([state.rank])
            found += [
                (work, int(work.active.rows(at)[0]))
                for work in stand.works
                if id(work) not in known
            ]
        found.sort(key=_find_place)
        waiting: list[CollectivePost | MessagePost] = []
        made: dict[int, matching.Work] = {}
        for work, row in found:
            made[id(work)] = self._work(state, work, row, stand)
        for work, row in found:
            waiting += self._posts(state, work, row, made[id(work)], matches, mailbox)
        _number(waiting)
        for name, work in self._cohort_state.blocked_ranks.handles_of(state.rank):
            if id(work) not in made:
                made[id(work)] = self._make_finished_work(state, work, len(made))
            state.handles[name] = made[id(work)]
            state.process.keep(made[id(work)].call)
        for work, _ in found:
            each = made[id(work)]
            if each.call.asynchronous:
                buffers.take(state, each.call, each)
        if stand is not None:
            self._name(state.process, stand.instance, stand.instance.step.index)
            state.call = self._find_call(state, stand, made)
            state.waiting = tuple(made[id(work)] for work in stand.works)
            for each in state.waiting:
                each.waited_after = len(state.works)
            place = (stand.instance.step.index, stand.instance.iteration)
            state.walker = state.process.walk(after=place)
        state.process.undefined_reads.clear()
        return waiting

    def _call(
        self, state: RankState, of: WorkColumn | WaitingRanks, row: int | None = None
    ) -> Call:
        """Return a call once more, as the rank made it.

        Of a work that runs, `row` is the rank's. Raises CohortError where the call would be
        another by now: it is evaluated on what the rank holds since. The numbers that the rank has
        named since are named again afterwards, as it goes on with these.
        """
        process, instance = state.process, of.instance
        since = {name: process.scope.get(name) for name in instance.variables}
        known = since.keys() & process.scope.keys()
        self._name(process, instance, instance.step.index)
        try:
            # The arguments are evaluated on what the rank holds now. With `dst: n` and a later step
            # that makes another `n` this is another call, and the rank must be walked from the
            # beginning.
            call = process.call(instance.step, instance.iteration)
        except ScenarioError:
            call = None
        for name, value in since.items():
            if name in known:
                process.scope[name] = value
            else:
                process.scope.pop(name, None)
        if call is None or not all(_find_alike(state, call, of, row)):
            leave("a call that would be another by now")
        return call

    def _find_call(
        self, state: RankState, stand: WaitingRanks, made: Mapping[int, matching.Work]
    ) -> Call:
        if isinstance(stand.instance.step.operation, Waiting):
            return self._call(state, stand)
        return made[id(stand.works[0])].call

    def _work(
        self, state: RankState, work: WorkColumn, row: int, stand: WaitingRanks | None
    ) -> matching.Work:
        call = self._call(state, work, row)
        awaited = bool(work.waited[row])
        made = matching.Work(
            rank=state.rank,
            call=call,
            start_s=0.0,
            at=-1 if call.asynchronous else len(state.events),
            number=len(state.works),
            handle=call.handle if call.asynchronous else None,
            begun=True,
            waited=awaited,
        )
        if awaited and call.asynchronous and stand is not None:
            made.waited_at = (stand.instance.step.index, stand.instance.iteration)
        state.works.append(made)
        return made

    def _make_finished_work(self, state: RankState, work: WorkColumn, number: int) -> matching.Work:
        """Return work that the rank has waited for: nothing is left of it but its handle."""
        call = self._call(state, work)
        return matching.Work(
            rank=state.rank,
            call=call,
            start_s=0.0,
            at=-1,
            number=-1 - number,
            handle=call.handle,
            begun=True,
            waited=True,
        )

    def _posts(
        self,
        state: RankState,
        work: WorkColumn,
        row: int,
        made: matching.Work,
        matches: CollectiveMatches,
        mailbox: Mailbox,
    ) -> list[CollectivePost | MessagePost]:
        """Give a work what it is made of; returns what is not done of it."""
        operation = made.call.operation
        messages = (
            operation.messages(made.call.entry) if isinstance(operation, PointToPoint) else ()
        )
        waiting: list[CollectivePost | MessagePost] = []
        for at, post in enumerate(work.posts):
            done = _is_done(post, row)
            found: CollectivePost | MessagePost
            if isinstance(post, CollectiveColumn):
                found = self._join(made.call, post, row, matches, done=done)
            else:
                assert isinstance(post, Messages)
                message = messages[at]
                group = message.group or made.call.entry.group
                if done:
                    found = _make_arrived(made.call, group, message, post, row)
                else:
                    found = mailbox.post(made.call, group, message, 0.0)
                found.number, found.row = post.number, row
            found.work = made
            made.posts.append(found)
            waiting += [] if done else [found]
        return waiting

    def _join(
        self,
        call: Call,
        post: CollectiveColumn,
        row: int,
        matches: CollectiveMatches,
        *,
        done: bool,
    ) -> CollectivePost:
        """Return a rank's post in a collective, as if the walk had brought it there."""
        rank = call.entry.rank
        if not done:
            return matches.join(call, 0.0, position=post.position)
        match = CollectiveMatch(group=call.entry.group, position=post.position, settled=True)
        assert isinstance(call.operation, Collective)
        collective_post = CollectivePost(
            rank=rank,
            call=call,
            time_s=0.0,
            match=match,
            operation=call.operation,
            entry=call.entry,
        )
        collective_post.done_s, collective_post.past = 0.0, True
        collective_post.outcome = [
            (
                name,
                make_list(values[row, ...].copy(), getattr(post.arguments[name], "listed", False)),
                post.bounds[name][row, ...].copy() if name in post.bounds else None,
            )
            for name, values in post.results.items()
        ]
        return collective_post


def _find_place(each: tuple[WorkColumn, int]) -> float:
    """Return the place of a work in the order of calls: a call that blocks is the last."""
    return float("inf") if each[0].number < 0 else each[0].number


def _is_done(post: PostColumn, row: int) -> bool:
    if isinstance(post, Messages):
        return post.left == 0 or not post.unmet[row]
    assert post.work is not None
    return bool(post.work.left[row] == 0)


def _find_alike(
    state: RankState, call: Call, of: WorkColumn | WaitingRanks, row: int | None
) -> Iterator[bool]:
    """Yield whether parts of a call are those of a work that runs: its messages, its tensors."""
    operation, entry = call.operation, call.entry
    assert operation is not None
    posts = [] if row is None or isinstance(of, WaitingRanks) else of.posts
    messages = operation.messages(entry) if isinstance(operation, PointToPoint) and posts else ()
    if posts:
        yield operation.refuse(entry) is None
        yield not isinstance(posts[0], Messages) or len(messages) == len(posts)
    for at, post in enumerate(posts):
        if isinstance(post, CollectiveColumn):
            for name, view in post.arguments.items():
                yield _is_part(state, view, row, entry.arguments.get(name))
        elif isinstance(post, Messages):
            message = messages[at]
            yield (message.sends, message.peer) == (post.sends, int(post.peers[row]))
            given = message.payload if message.sends else message.buffer
            yield _is_part(state, post.payload, row, given)


def _is_part(state: RankState, view: Any, row: Any, array: Any) -> bool:
    """Whether an array is the part of a tensor that a view is on a rank's row; so is all of it."""
    if not isinstance(view, View) or view.offsets is None:
        return True
    held, offsets = state.process.scope.get(view.column.name), view.offsets
    mine = offsets[row if len(offsets) > 1 else 0]
    if not isinstance(array, np.ndarray) or not isinstance(held, np.ndarray):
        return False
    first = (array.ctypes.data - held.ctypes.data) // held.itemsize
    return array.shape == mine.shape and (not mine.size or first == int(mine.flat[0]))


def _make_arrived(call: Call, group: Any, message: Any, post: Messages, row: int) -> MessagePost:
    """Return a message that has met its other side, which nothing needs any more."""
    found = MessagePost(
        rank=call.entry.rank,
        call=call,
        time_s=0.0,
        group=group,
        message=message,
        payload=message.payload,
        order=-1,
        nth=0,
        past=True,
    )
    found.done_s = 0.0
    if not post.sends and post.arrived is not None:
        found.outcome = [(None, post.arrived[row, ...].copy(), None)]
    return found


def _number(waiting: list[CollectivePost | MessagePost]) -> None:
    """Number messages that wait since before: those of the same ends end at -1."""
    left: Counter[tuple[Any, ...]] = Counter()
    for post in reversed(waiting):
        if isinstance(post, MessagePost):
            ends = (post.group.key, post.message.peer, post.message.tag, post.message.sends)
            left[ends] += 1
            post.nth = -left[ends]
