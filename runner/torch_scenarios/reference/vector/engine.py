"""The engine: the ranks that are furthest behind take their next step, all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.expressions.hollow import hollow_arrays, need
from torch_scenarios.expressions.lanes import Lanes, Stack
from torch_scenarios.expressions.values import Form, PerRank, roots_of
from torch_scenarios.expressions.values import Record as Assignments
from torch_scenarios.limits import Limits
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.scenario import Step
from torch_scenarios.model.traits import TRAITS, Traits
from torch_scenarios.operations.base import (
    Collective,
    Entry,
    GroupCreation,
    Local,
    Operation,
    PointToPoint,
    Waiting,
)
from torch_scenarios.operations.compute import PARTS, STATED, TIME
from torch_scenarios.operations.sleep import Sleep
from torch_scenarios.reference.rules.creation import price
from torch_scenarios.reference.rules.waiting import is_used_up
from torch_scenarios.reference.state import PASSED_TOGETHER, Ledger
from torch_scenarios.reference.vector.call import (
    CallDescription,
    Change,
    CollectiveColumn,
    Instance,
    Link,
    Messages,
    PostColumn,
    Rows,
    WaitingRanks,
    WorkColumn,
)
from torch_scenarios.reference.vector.cohort import (
    ActiveRanks,
    CohortError,
    Column,
    Scene,
    View,
    leave_apart,
)
from torch_scenarios.reference.vector.evaluator import Evaluation, Unrolled
from torch_scenarios.reference.vector.fitness import find_misfit, group_of
from torch_scenarios.reference.vector.matching import (
    Calls,
    Collectives,
    Items,
    MessageEvaluator,
    UnmatchedMessages,
    entries,
    find_stored,
)
from torch_scenarios.reference.vector.record import ColumnRecord, RecordWriter, TrafficWriter
from torch_scenarios.reference.vector.state import Flights, Memory, check_together, put_in_place
from torch_scenarios.vocabulary import WORLD

# -------------------------------------------------------------------------------------------------
# Whether the calls of each rank are done one after the other.
#
# A device does a rank's calls in the order of streams, hosts connect in the order of calls, and
# messages may match in their order alone. Where each call is done before its rank makes the next
# one, all of that is so anyway: no backend has anything to change.


#: collectives in which some backend connects ranks one by one
CONNECTING = frozenset().union(*(each.by_messages for each in TRAITS.values()))


class Turns:
    """The calls of all ranks, in whose order a backend may have a say.

    What the semantics leave to a backend is mostly order: of the works on a stream, of the
    connections that hosts make, of messages where tags do not tell them apart. Where each call is
    done before its rank makes the next one (`in_turn`), there is one order, and nothing to leave.

        isend, wait, irecv, wait       in turn: a stream, late connections, no tags change nothing
        isend, irecv, wait, wait       not: two works of a rank run at once

    So most programs of many ranks get their forecasts for nothing (`is_untouched_by`).
    """

    def __init__(self, plan: Plan, memory: Memory) -> None:
        """Begin before the first call."""
        self._plan = plan
        self._memory = memory
        #: works that began and are not done, by rank `[W]`
        self._running = np.zeros(plan.world_size, np.int64)
        #: whether every call was done before its rank made the next one
        self.in_turn = True
        #: whether one call has messages between the same ranks that tags alone tell apart
        self.told_by_tags = False
        self._halves: dict[str, _Half] = {}

    def begin(self, work: WorkColumn) -> None:
        """Note that ranks make a call."""
        index = work.active.index
        self.in_turn = self.in_turn and not self._running[index].any()
        self._running[index] += 1

    def finish(self, work: WorkColumn, finished: Rows) -> None:
        """Note that all of a call is done on some rows; None: on all of them."""
        ranks = work.active.index if finished is None else work.active.ranks[finished]
        self._running[ranks] -= 1

    def messages(self, group: str, posts: Sequence[Messages]) -> None:
        """Note the messages of one call of many ranks."""
        for sends in (True, False):
            mine = [post for post in posts if post.sends == sends]
            if any(post.tags.__class__ is not int or post.tags != mine[0].tags for post in mine):
                peers = np.sort(np.stack([post.peers for post in mine]), axis=0)
                self.told_by_tags |= bool((peers[1:] == peers[:-1]).any())
        half = self._half(group)
        active = posts[0].active
        there = half.peers[active.index]
        outward, inward = np.zeros((2, active.size), np.bool_)
        for post in posts:
            here = outward if post.sends else inward
            here |= post.peers == there
        half.offer(active, outward, inward)

    def collective(self, group: str, operation: Collective, post: CollectiveColumn) -> None:
        """Note a collective in which every member may send to every other, or to its root."""
        half = self._half(group)
        everyone = np.ones(post.active.size, np.bool_)
        if operation.rooted is None:
            half.offer(post.active, everyone, everyone)
        else:
            half.unknown = True

    def _half(self, group: str) -> _Half:
        if group not in self._halves:
            self._halves[group] = _Half(self._memory, group)
        return self._halves[group]

    def is_untouched_by(self, traits: Traits) -> bool:
        """Whether a backend makes of a program that ends well just what the semantics say."""
        waits = traits.enqueues or traits.connects_late
        return (
            not traits.may_show_anywhere()
            and (self.in_turn or not waits)
            and (traits.tags or (self.in_turn and not self.told_by_tags))
            and not (traits.connects_late and any(map(_Half.is_garbled, self._halves.values())))
        )


class _Half:
    """What each rank of the groups of one name connects with the rank half a ring away.

    Both halves of such a connection go in one message (:mod:`torch_scenarios.reference.backends`):
    the two ranks must offer each other the same, call by call.
    """

    def __init__(self, memory: Memory, group: str) -> None:
        """Find who is half a ring away `[W]`; -1 where no rank is."""
        numbers = memory.group_numbers(group)
        self.peers = np.full(len(numbers), -1, np.int64)
        self.unknown = False
        for number, each in enumerate(memory.groups[group]):
            if each.size % 2 == 0:
                members = np.asarray(each.ranks, np.int64)
                mine = numbers[members] == number
                self.peers[members[mine]] = np.roll(members, each.size // 2)[mine]
        #: what of it is connected, outward and inward `[2, W]`, and what the first call did, and
        #: the second: 1 outward, 2 inward, 3 both `[2, W]`
        self._connected = np.zeros((2, len(numbers)), np.bool_)
        self._offers = np.zeros((2, len(numbers)), np.int8)

    def offer(
        self, active: ActiveRanks, outward: NDArray[np.bool_], inward: NDArray[np.bool_]
    ) -> None:
        """Note a call that connects in these directions `[L]`, if they are not."""
        there = self.peers[active.index] >= 0
        new = np.stack([outward, inward]) & there & ~self._connected[:, active.index]
        if not new.any():
            return
        self._connected[:, active.index] |= new
        code = (new[0] + 2 * new[1]).astype(np.int8)
        first, second = self._offers[:, active.index]
        self._offers[:, active.index] = (
            np.where(first == 0, code, first),
            np.where((first != 0) & (second == 0), code, second),
        )

    def is_garbled(self) -> bool:
        """Whether what a rank offers another is not what that one offers it, or may not be."""
        ranks = np.flatnonzero(self.peers >= 0)
        mine, theirs = self._offers[:, ranks], self._offers[:, self.peers[ranks]]
        turned = np.asarray([0, 2, 1, 3])[theirs]
        return self.unknown or bool(((mine != turned) & (mine != 0) & (turned != 0)).any())


# -------------------------------------------------------------------------------------------------
# Who stands in a call until its work is done, and what work is waited for.


class BlockedRanks:
    """The ranks that a call blocks, and the works of asynchronous calls.

    A blocked rank costs nothing: no rank is asked again whether it can go on. When rows of a post
    are done, those of them that a rank waits for are counted down (`_waiting` `[W]`), and the ranks
    at 0 go on together, from whatever stand they were in.

        stand 1     recv on ranks 0 1 2 3        _waiting  [1, 1, 1, 1]
        a send      of ranks 2 and 3 arrives     _waiting  [1, 1, 0, 0]: ranks 2 and 3 are released
        stand 1     keeps ranks 0 and 1
    """

    def __init__(
        self,
        plan: Plan,
        evaluation: Evaluation,
        flights: Flights,
        notes: RecordWriter,
        turns: Turns,
        go: Callable[[int, ActiveRanks], None],
    ) -> None:
        """Begin with no rank; `go` lets ranks that are released take the step of a number."""
        self.turns = turns
        self._plan = plan
        self._evaluation = evaluation
        self._flights = flights
        self._notes = notes
        self._go = go
        self._released: list[NDArray[np.int64]] = []
        #: how many works a standing rank waits for, and in which stand it is
        self._waiting = np.zeros(plan.world_size, np.int64)
        self._blocked_ranks = np.full(plan.world_size, -1, np.int64)
        self._stands: dict[int, WaitingRanks] = {}
        self._stood = 0
        #: the works whose handle a rank has yet to wait for
        self._unwaited: dict[int, WorkColumn] = {}
        self._handles: dict[str, NDArray[np.int64]] = {}
        self._works: list[WorkColumn] = []

    @property
    def empty(self) -> bool:
        """Whether every work was waited for."""
        return not self._unwaited

    # ------------------------------------------------------------------ what is left

    @property
    def open_works(self) -> list[WorkColumn]:
        """The works of asynchronous calls that some rank has not waited for, in order."""
        return list(self._unwaited.values())

    def stand_of(self, rank: int) -> WaitingRanks | None:
        """Return in which call a rank stands; None where it does not."""
        return self._stands.get(int(self._blocked_ranks[rank]))

    def handles_of(self, rank: int) -> Iterator[tuple[str, WorkColumn]]:
        """Yield the handles of a rank, each with the work that it means."""
        for name, numbers in self._handles.items():
            if numbers[rank] >= 0:
                yield name, self._works[int(numbers[rank])]

    def find_dropped(self, work: WorkColumn, finished: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return on which rows of a work `[L]` no handle is left, or the rank has finished."""
        over: NDArray[np.bool_] = finished[work.active.ranks]
        kept = np.zeros(work.active.size, np.bool_)
        for name in work.handles:
            kept |= self._handles[name][work.active.index] == work.number
        return over | ~kept

    # ------------------------------------------------------------------ calls

    def handles(self, named: Iterable[dict[str, Any]], active: ActiveRanks) -> NDArray[np.int64]:
        """Return what each rank waits for `[works, L]`: the number of a work; -1 where it has none.

        Each is doubled, and one more where the rank has waited for it before. `up` means those of
        `up[0]`, `up[1]`, ... that were not waited for.
        """
        table: list[NDArray[np.int64]] = []
        unclear = np.zeros(active.size, np.bool_)
        for handle in named:
            numbers = np.full(active.size, -1, np.int64)
            for name, rows in handle.items():
                if name in self._handles:
                    numbers[rows] = self._handles[name][active.ranks[rows]]
            family = [
                each for name in handle for each in self._handles if each.startswith(f"{name}[")
            ]
            several, over = self._find_unwaited(family, active)
            table += [numbers, *several]
            unclear |= over | (bool(family) & (numbers >= 0))
        found = np.stack(table) if table else np.empty((0, active.size), np.int64)
        ordered = np.sort(found, axis=0)
        unclear |= ((ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0)).any(axis=0)
        leave_apart(unclear.any())
        return 2 * found + self._find_waited(found, active)

    def _find_waited(self, table: NDArray[np.int64], active: ActiveRanks) -> NDArray[np.bool_]:
        """Return which works of a table ranks have waited for; a message's may be so once."""
        found = np.zeros(table.shape, np.bool_)
        for work in self.works(np.unique(table).tolist()):
            at, rows = np.nonzero(table == work.number)
            waited = work.waited[work.active.rows(active.ranks[rows])]
            leave_apart(is_used_up(work.instance.step.operation, waited).any())
            found[at, rows] = waited
        return found

    def _find_unwaited(
        self, names: Sequence[str], active: ActiveRanks
    ) -> tuple[list[NDArray[np.int64]], NDArray[np.bool_]]:
        """Return the number of each rank's work `[L]` by handle; -1 where it was waited for.

        And who `[L]` has waited for all that it had.
        """
        had = left = np.zeros(active.size, np.bool_)
        found = []
        for name in names:
            numbers = self._handles[name][active.index].copy()
            had = had | (numbers >= 0)
            for number in np.unique(numbers[numbers >= 0]).tolist():
                work = self._works[number]
                rows = np.flatnonzero(numbers == number)
                numbers[rows[work.waited[work.active.rows(active.ranks[rows])]]] = -1
            left = left | (numbers >= 0)
            found.append(numbers)
        return found, had & ~left

    def works(self, numbers: Iterable[int]) -> tuple[WorkColumn, ...]:
        """Return the works of these numbers."""
        return tuple(self._works[number] for number in numbers if number >= 0)

    def start(
        self,
        scene: Scene,
        work: WorkColumn,
        used: Iterable[tuple[View, bool]],
        description: CallDescription,
        named: Sequence[tuple[str, Any]],
    ) -> None:
        """Note a call; one that is asynchronous holds its tensors until it is waited for."""
        self.turns.begin(work)
        if not _is_asynchronous(work, description):
            return
        for view, writes in used:
            self._flights.take(work, view, writes=writes)
        work.flown = tuple({view.column.name for view, _ in used})
        work.number = len(self._works)
        self._works.append(work)
        self._unwaited[work.number] = work
        none = np.full(self._plan.world_size, -1, np.int64)
        for name, ranks in named:
            self._handles.setdefault(name, none.copy())[ranks] = work.number
        work.handles = tuple(name for name, _ in named)
        self._notes.note(work.instance, scene, description)

    def stay(
        self, scene: Scene, work: WorkColumn, description: CallDescription
    ) -> NDArray[np.int64] | None:
        """Let the ranks of a blocking call stand until it is done; returns who stands."""
        if _is_asynchronous(work, description):
            return None
        stand = WaitingRanks(
            instance=work.instance, active=scene.active, works=(work,), description=description
        )
        return self.stand(stand, scene)

    def stand(self, stand: WaitingRanks, scene: Scene) -> NDArray[np.int64] | None:
        """Complete a call on the ranks for which all is done; returns the ranks that must stand."""
        active = stand.active
        left = np.zeros(active.size, np.int64)
        for work in stand.works:
            rows = work.active.rows(active.ranks) if active is not work.active else None
            here = slice(None) if rows is None else rows
            work.waited[here] = True
            if work.open:
                left += (work.left if rows is None else work.left[rows]) > 0
        if not left.any():
            self._finish(stand, scene)
            return None
        done = left == 0
        if done.any():
            ready = active.among(done)
            self._finish(stand, Scene(ready, scene.variables))
        blocked_ranks = active.among(~done)
        for work in stand.works:
            rows = work.active.rows(blocked_ranks.ranks)
            work.awaited[rows] = work.left[rows] > 0
        self._stood += 1
        self._stands[self._stood] = stand
        self._waiting[blocked_ranks.index] = left[~done]
        self._blocked_ranks[blocked_ranks.index] = self._stood
        return blocked_ranks.ranks

    def note_done(self, post: PostColumn, rows: Rows) -> None:
        """Note that rows of a post are done; ranks that stand for nothing else are released."""
        work = post.work
        assert work is not None
        finished = work.advance(rows)
        self.turns.finish(work, finished)
        awaited = work.awaited if finished is None else work.awaited[finished]
        if not awaited.any():
            return
        ranks = (work.active.ranks if finished is None else work.active.ranks[finished])[awaited]
        work.awaited[work.active.rows(ranks)] = False
        self._waiting[ranks] -= 1
        free = ranks[self._waiting[ranks] == 0]
        if len(free):
            self._released.append(free)

    def release(self) -> None:
        """Let ranks go on whose call has nothing left to wait for."""
        if not self._released:
            return
        ranks = np.sort(np.concatenate(self._released))
        self._released = []
        places = self._blocked_ranks[ranks]
        for place in np.unique(places).tolist():
            stand = self._stands[place]
            active = ActiveRanks(ranks[places == place], self._plan.world_size)
            self._finish(stand, Scene(active, stand.instance.variables))
            self._go(stand.instance.number + 1, active)
            self._blocked_ranks[active.index] = -1
            if not (self._blocked_ranks == place).any():
                del self._stands[place]

    def _finish(self, stand: WaitingRanks, scene: Scene) -> None:
        """Store what a call's works brought, on the ranks for which all is done."""
        names = tuple(sorted({name for work in stand.works for name in work.names}))
        before = self._notes.before(stand.instance.step, scene, names)
        changes: list[Change] = []
        slack: dict[str, Any] = {}
        for work in stand.works:
            rows = None if scene.active is work.active else work.active.rows(scene.active.ranks)
            at = slice(None) if rows is None else rows
            if work.stored[at].any():
                continue  # a wait of all these ranks for what they have waited for already
            work.stored[at] = True
            self._notes.finish(scene, work.posts, rows)
            for post in work.posts:
                changes += put_in_place(post, scene.active, rows, slack)
            if work.stored.all():
                work.posts = []
            self._flights.give_back(work, scene.active)
        description = stand.description
        if scene.active is not stand.active:
            description = description.among(stand.active.rows(scene.active.ranks))
        self._notes.note(
            stand.instance, scene, description, names, tuple(changes), slack=slack, before=before
        )
        for work in stand.works:
            if work.number in self._unwaited and work.waited.all():
                del self._unwaited[work.number]


def _is_asynchronous(work: WorkColumn, description: CallDescription) -> bool:
    operation = work.instance.step.operation
    assert operation is not None
    return operation.asynchronous or bool(description.arguments.get("async_op"))


# -------------------------------------------------------------------------------------------------
# How ranks begin a call: what each shape of operation does when many take it at once.


class CallStarter:
    """Begins the calls of one plan; the ranks that a call blocks are in `blocked_ranks`.

    There is one method for each shape of operation. It evaluates the call for all ranks of a scene,
    posts what the call starts, and notes the rows that are done by that. What it means is asked of
    the rules that the walk asks too: `answers`, `find_mismatch`, `is_whole`, `disagree`,
    `leave_to_all`.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        ledger: Ledger,
        flights: Flights,
        memory: Memory,
        evaluation: Evaluation,
        calls: Calls,
        notes: RecordWriter,
        blocked_ranks: BlockedRanks,
    ) -> None:
        """Begin with no call made."""
        self._turns = blocked_ranks.turns
        self._plan = plan
        self._ledger = ledger
        self._flights = flights
        self._memory = memory
        self._evaluation = evaluation
        self._calls = calls
        self._notes = notes
        self._blocked_ranks = blocked_ranks
        self._message_evaluator = MessageEvaluator(plan, evaluation, memory)
        self.collectives = Collectives(plan, memory)
        self._mail = UnmatchedMessages(notes.traffic)

    @property
    def empty(self) -> bool:
        """Whether every message met another, and every collective all its members."""
        return self._mail.empty and self.collectives.empty

    def begin(self, instance: Instance, scene: Scene) -> NDArray[np.int64] | None:
        """Begin a call; returns the ranks that it blocks."""
        operation = instance.step.operation
        if operation is None:
            self._notes.note(instance, scene, CallDescription())
            return None
        begin = next(begin for shape, begin in self._shapes if isinstance(operation, shape))
        blocked: NDArray[np.int64] | None = begin(self, instance, scene, operation)
        return blocked

    def _local(self, instance: Instance, scene: Scene, operation: Operation) -> None:
        """Take a step that each rank takes by itself.

        An assignment of tensors or numbers, or a pause.

        Numbers are kept as lanes and are no tensors. What is stored into a part of a tensor
        (`sets`) keeps its column; what is assigned whole gets a new one. Values from before are
        noted first, since `expect` may ask for them.
        """
        assignments = next(iter(instance.step.arguments.values()), None)
        if self._memory.hollow and isinstance(operation, Sleep):
            self._pause(instance, scene, assignments)
            return
        for name in STATED:
            if name in instance.step.arguments:
                self._pause(instance, scene, instance.step.arguments[name], name)
        assert isinstance(assignments, Assignments)
        if operation.numbers(instance.step.arguments):
            for name, form in assignments.fields.items():
                self._evaluation.let(name, form, scene)
            self._notes.note(instance, scene, CallDescription())
            return
        parts = instance.step.arguments.get(PARTS)
        targets = parts.fields if isinstance(parts, Assignments) else {}
        stored = {name for target in targets.values() for name in roots_of(target)}
        assigned = stored | (assignments.fields.keys() - targets.keys())
        before = self._notes.before(instance.step, scene, tuple(sorted(assigned)))
        changes: list[Change] = []
        for name, form in assignments.fields.items():
            if name in targets:
                changes.append(self._store(targets[name], form, scene))
                continue
            self._flights.check_name(name, scene.active)
            value = self._evaluation.tensor(form, scene)
            values = self._evaluation.hold(name, value, scene.active, instance.step.mark)
            listed = self._memory.columns[name].listed
            changes.append(Change(name, scene.active, None, values, listed))
        names = tuple(sorted(assigned))
        self._notes.note(instance, scene, CallDescription(), names, tuple(changes), before=before)

    def _pause(
        self, instance: Instance, scene: Scene, duration: Form | None, name: str = TIME
    ) -> None:
        """Note a pause of ranks, or what their hosts do: a replay has a clock, and here is none."""
        if isinstance(duration, PerRank):
            for active, form in self._evaluation.branches(duration, scene):
                if active.size and form is not None:
                    apart = Scene(active, scene.variables)
                    self._pause(instance, apart, form, name)
            return
        value = self._evaluation.value(duration, scene)
        if value is None:
            return
        if not isinstance(value, Lanes | int | float):
            need("a time that is not a number")
        times = value.values if isinstance(value, Lanes) else np.full(scene.active.size, value)
        for each in np.unique(times).tolist():
            ranks = scene.active.ranks[times == each]
            self._notes.traffic.pause(ranks, instance.step.index, **{STATED[name]: each})

    def _store(self, target: Form, form: Form, scene: Scene) -> Change:
        """Store into a part of a tensor, in place; raises CohortError where that does not fit."""
        values = self._evaluation.evaluate_stored(form, scene)
        part = self._evaluation.part(target, scene)
        self._flights.check(part, writes=True)
        found = self._evaluation.fit(values, part, scene.active.size)
        part.put(None, found)
        return Change(part.column.name, scene.active, part.offsets, found)

    def _creation(self, instance: Instance, scene: Scene, operation: GroupCreation) -> None:
        """Let all ranks create a group together, as torch has it."""
        arguments = self._calls.plain(instance.step, operation, scene)
        entry = Entry(rank=0, group=self._plan.world, arguments=arguments)
        refused = operation.refuse(entry) is not None
        leave_apart(refused or operation.local(entry) or not scene.active.everyone)
        group = operation.group(entry, self._plan.scenario.timeout_s)
        leave_apart(self._memory.is_known(group.name))
        units = price(group, scene.active.size)
        self._ledger.account.spend(units, instance.step.mark)
        number = self._memory.create(group)
        link = Link(("new_group",), np.zeros(scene.active.size, np.int64), number)
        before = self._notes.before(instance.step, scene, ())
        self._notes.note(instance, scene, CallDescription(arguments, WORLD, (link,)), before=before)

    def _messages(
        self, instance: Instance, scene: Scene, operation: PointToPoint
    ) -> NDArray[np.int64] | None:
        parts = self._calls.part_items(instance.step, operation, scene)
        if parts is None:
            return self._post(instance, scene, operation, None)
        blocked = [
            self._post(instance, Scene(active, scene.variables), operation, items)
            for active, items in parts
        ]
        return _join_ranks([each for each in blocked if each is not None])

    def _post(
        self, instance: Instance, scene: Scene, operation: PointToPoint, items: Items | None
    ) -> NDArray[np.int64] | None:
        """Post the messages of ranks that all have the same items.

        One column for each message of the list; all of them are one work with one handle. They meet
        what waits as soon as they are posted, in the order of the list, and some rows may be done
        by that before the call has returned.
        """
        posts, arguments, group = self._message_evaluator.of(instance.step, operation, scene, items)
        keys = self._memory.keys(group)
        numbers = self._memory.group_numbers(group)
        used: list[tuple[View, bool]] = []
        for at, post in enumerate(posts):
            payload = post.payload
            size = prod(payload.shape) * payload.dtype.itemsize
            post.number = self._notes.traffic.post(
                scene.active.ranks,
                post.peers,
                size,
                sends=post.sends,
                step=instance.step.index,
                group=group,
                begins=at == 0,
            )
            if isinstance(post.payload, View):
                self._flights.check(post.payload, writes=not post.sends)
                used.append((post.payload, not post.sends))
                post.target = None if post.sends else post.payload
        check_together(used)
        if not self._memory.hollow:
            self._turns.messages(group, posts)
        names = tuple(sorted({view.column.name for view, writes in used if writes}))
        work = WorkColumn(instance=instance, active=scene.active, posts=[*posts], names=names)
        self._ledger.keep_bytes(sum(post.peers.nbytes for post in posts), instance.step.mark)
        links = tuple(Link(keys, numbers, 0, post.sends, post.peers, post.tags) for post in posts)
        description = CallDescription(arguments, group, links)
        self._blocked_ranks.start(
            scene, work, used, description, self._calls.name_handles(instance.step, scene)
        )
        for post in posts:
            for other, rows in self._mail.post(group, post):
                self._blocked_ranks.note_done(other, rows)
        return self._blocked_ranks.stay(scene, work, description)

    def _collective(
        self, instance: Instance, scene: Scene, operation: Collective
    ) -> NDArray[np.int64] | None:
        """Let ranks enter: together those at one position that store into the same arguments.

        Where no value is computed, groups that are whole enter together at whatever position.
        """
        found, group = self._calls.collective(instance.step, operation, scene)
        numbers = self._memory.group_numbers(group)[scene.active.index]
        leave_apart(numbers.min() < 0)
        positions = self.collectives.positions(group, scene.active)
        if type(operation).writes is Operation.writes:
            stored = tuple(param.name for param in operation.params if param.writes)
            if (positions == positions[0]).all() or self.collectives.is_whole(group, scene.active):
                return self._enter(instance, scene, operation, found, set(stored))
            apart = {
                (at, stored): np.flatnonzero(positions == at)
                for at in np.unique(positions).tolist()
            }
        else:
            apart = self._find_apart(operation, scene, found, positions, group)
        blocked = []
        for (_, key), rows in apart.items():
            part = ActiveRanks(scene.active.ranks[rows], scene.active.world_size)
            inner = Scene(part, scene.variables)
            found, _ = self._calls.collective(instance.step, operation, inner)
            left = self._enter(instance, inner, operation, found, set(key))
            blocked += [] if left is None else [left]
        return _join_ranks(blocked)

    def _find_apart(
        self,
        operation: Collective,
        scene: Scene,
        found: dict[str, Any],
        positions: NDArray[np.int64],
        group: str,
    ) -> dict[tuple[int, tuple[str, ...]], NDArray[np.int64]]:
        """Return the rows of ranks by their position, and by what the call stores into."""
        groups, numbers = self._memory.groups[group], self._memory.group_numbers(group)
        apart: dict[tuple[int, tuple[str, ...]], list[int]] = {}
        for row, (rank, at) in enumerate(
            zip(scene.active.ranks.tolist(), positions.tolist(), strict=True)
        ):
            stored = find_stored(operation, groups[int(numbers[rank])], rank, found, row)
            apart.setdefault((at, stored), []).append(row)
        return {key: np.asarray(rows) for key, rows in apart.items()}

    def _enter(
        self,
        instance: Instance,
        scene: Scene,
        operation: Collective,
        found: dict[str, Any],
        stored: set[str],
    ) -> NDArray[np.int64] | None:
        """Let ranks enter the next collective of their groups: many groups of one name at once.

        All are at one position, or all groups are whole, as their caller has seen to. Traffic is
        noted before anyone passes, because a post that completes a group lets others go on.
        """
        group = group_of(instance.step)
        used = [(value, name in stored) for name, value in found.items() if isinstance(value, View)]
        for view, writes in used:
            self._flights.check(view, writes=writes)
        numbers = self._memory.group_numbers(group)
        inside = numbers[scene.active.index]
        post = CollectiveColumn(
            active=scene.active, operation=operation, numbers=inside, arguments=found
        )
        names = tuple(sorted({view.column.name for view, writes in used if writes}))
        work = WorkColumn(instance=instance, active=scene.active, posts=[post], names=names)
        keys = self._memory.keys(group)
        position = int(self.collectives.positions(group, scene.active)[0])
        plain = {name: value for name, value in found.items() if not isinstance(value, Stack)}
        description = CallDescription(plain, group, (Link(keys, numbers, position),))
        post.number = self._notes.traffic.stroke()
        for entered in entries(self._memory, operation, group, post, instance.step):
            self._notes.traffic.enter(entered)
        if operation.name in CONNECTING and not self._memory.hollow:
            self._turns.collective(group, operation, post)
        self._blocked_ranks.start(
            scene, work, used, description, self._calls.name_handles(instance.step, scene)
        )
        for other, rows in self.collectives.enter(group, post):
            self._blocked_ranks.note_done(other, rows)
        return self._blocked_ranks.stay(scene, work, description)

    def _wait(
        self, instance: Instance, scene: Scene, operation: Waiting
    ) -> NDArray[np.int64] | None:
        """Let ranks wait: for the same works together, for others apart."""
        names, arguments = self._calls.handles(instance.step, operation, scene)
        table = self._blocked_ranks.handles(names, scene.active)
        apart = {tuple(column) for column in table[:, :1].T.tolist()}
        if (table != table[:, :1]).any():
            apart = {tuple(column) for column in table.T.tolist()}
        blocked = []
        for numbers in sorted(apart):
            same = (table == np.asarray(numbers)[:, np.newaxis]).all(axis=0)
            together = scene.active.among(same)
            works = self._blocked_ranks.works(number // 2 for number in numbers)
            inner = Scene(together, scene.variables)
            description = CallDescription(arguments)
            if together is not scene.active:
                description = description.among(scene.active.rows(together.ranks))
            stand = WaitingRanks(
                instance=instance, active=together, works=works, description=description
            )
            left = self._blocked_ranks.stand(stand, inner)
            if left is not None:
                blocked.append(left)
        return _join_ranks(blocked)

    _shapes: ClassVar[tuple[tuple[type[Operation], Any], ...]] = (
        (Local, _local),
        (Collective, _collective),
        (PointToPoint, _messages),
        (Waiting, _wait),
        (GroupCreation, _creation),
    )


def _join_ranks(parts: list[NDArray[np.int64]]) -> NDArray[np.int64] | None:
    """Return the ranks that parts of a step block; None for none of them."""
    return np.sort(np.concatenate(parts)) if parts else None


# -------------------------------------------------------------------------------------------------
# The engine: the ranks that are furthest behind take their next step, all at once.
#
# Ranks that a step blocks stand until what they wait for is done; the others go on. Who is
# released is behind, and comes first, so that ranks part and join again (as the lanes of a GPU
# do).
#
#     turn   step                  takes it     stands    behind the others
#     1      recv from 3 (on 1)    1            1         -
#     2      send to 1 (on 3)      3            -         1, which the send releases
#     3      send to 1 (on 3)      -            -         1 passes it, and is with the others again
#     4      barrier               0, 1, 2, 3   -         -
#
# To let those go first that are furthest on would be as right, but 0, 2 and 3 would take the
# barrier in turn 3 and rank 1 would come to it alone: each branch would part the ranks for good,
# and the steps behind it would be taken once for each part. The step of the smallest number first
# is what GPUs without a stack of masks do (Collange, "Stack-less SIMT reconvergence at low cost",
# 2011: the smallest program counter).
#
# The order in which ranks are taken does not change the result, because nothing a rank does in a
# turn depends on another rank's turn but by a message or a collective, which are matched by rank
# and number and never by who came first. A receive from anyone is the exception: no cohort makes
# one (`leave_apart`), and the walk goes through all its orders.
#
# There is no clock: nothing in these programs takes time.

#: bytes of values that are kept for events; beyond, they are computed again where one is looked at
KEPT = 2**28


class CohortState:
    """The state of all ranks.

    What a cohort cannot do is `parked`, by the number of its turn, and left to be walked rank by
    rank; the others go on. At the turn `stop` all are left.

        4 ranks; a cohort in brackets, with the number of the step before which it is

        (0 1 2 3) at 0        all of them take step 0, `ranks: rank < 2`, or pass it by
        (0 1) at 1            blocked there: `recv`
        (2 3) at 1            they pass it by, and take step 2, `send`; ranks 0 and 1 are released
        (0 1) at 2            the furthest behind is next, so that those that parted can join again
        (0 1 2 3) at 3        one cohort again

    To take the furthest behind first is the rule that GPUs use for the lanes of a warp: ranks part
    at a condition and join behind it, at no cost but the steps that only some of them take.
    """

    def __init__(
        self,
        plan: Plan,
        limits: Limits,
        watched: NDArray[np.bool_] | None = None,
        *,
        parked: frozenset[int] = frozenset(),
        stop: int = -1,
        hollow: bool = False,
    ) -> None:
        """Bind the initial values; `watched` `[W]` are the ranks whose values are kept.

        Where tensors are `hollow`, shapes and dtypes are known, and no value is computed.
        """
        self._plan = plan
        self._again = watched is not None
        self._parked = parked
        self._stop = stop
        #: the number of the turn that is taken
        self.turn = 0
        #: who is left before the step of a number, and which ranks `[W]` took their last one
        self.left: list[tuple[int, ActiveRanks]] = []
        self.finished = np.zeros(plan.world_size, np.bool_)
        self.ledger = Ledger(limits)
        flights = Flights(plan.world_size, hollow=hollow)
        self.memory = Memory(plan, self.ledger, flights, hollow=hollow)
        arrays = hollow_arrays(limits) if hollow else numpy_arrays(limits)
        self._evaluation = Evaluation(plan, arrays, self.memory, limits)
        self._calls = Calls(plan, self._evaluation, self.memory)
        self._world = ActiveRanks(np.arange(plan.world_size), plan.world_size)
        self._steps = Unrolled(plan.scenario.steps, self._evaluation, self._world, self.ledger)
        self.record = ColumnRecord(plan, KEPT, watched)
        self._ready: dict[int, list[ActiveRanks]] = {}
        kind = TrafficWriter if hollow else RecordWriter
        notes = kind(self.memory, flights, self._calls, self.record, self.ledger)
        self.turns = Turns(plan, self.memory)
        self.blocked_ranks = BlockedRanks(
            plan, self._evaluation, flights, notes, self.turns, self._go
        )
        self._misfits: dict[int, str | None] = {}
        self._beginning = CallStarter(
            plan,
            ledger=self.ledger,
            flights=flights,
            memory=self.memory,
            evaluation=self._evaluation,
            calls=self._calls,
            notes=notes,
            blocked_ranks=self.blocked_ranks,
        )

    @property
    def whole(self) -> bool:
        """Whether every rank took its last step, and nothing is left of what any of them began."""
        return bool(self.finished.all()) and self._beginning.empty and self.blocked_ranks.empty

    @property
    def collectives(self) -> Collectives:
        """The collectives that ranks have entered."""
        return self._beginning.collectives

    @property
    def early_numbers(self) -> set[str]:
        """The numbers that were named before any rank came there."""
        return self._evaluation.settled

    def instance(self, number: int) -> Instance:
        """Return the step of a number, which some rank has taken or passed."""
        found = self._steps.at(number, together=False)
        assert found is not None
        return found

    # How cohorts part and join.
    #
    # `_ready` has the ranks that can go on, by the number of the step before which they are. The
    # lowest number goes first, and all that are there go together. Since ranks that are behind are
    # taken before those ahead, ranks that parted at a condition are together again at the end of
    # it:
    #
    #     number       0     1     2     3
    #     ranks 0, 1   x     x     -     x        `ranks: rank < 2` at 1, `ranks: rank >= 2` at 2
    #     ranks 2, 3   x     -     x     x        four turns for four ranks, not eight
    #
    # Blocked ranks are in no list: they come back when a post of theirs is done
    # (`BlockedRanks.release`). Where `_ready` is empty, each rank has finished or is blocked, and
    # which it is does not depend on the order in which cohorts were taken: each of these semantics
    # waits for all, and has one outcome (decision 42).
    def run(self) -> ColumnRecord:
        """Take every step that cohorts can. Raises CohortError where one cannot, in its `turn`.

        A turn is one step of all ranks that are before it. It is what makes a run repeatable:
        `stop` ends one before a given turn, and `parked` names turns in which ranks are left over
        to be walked.
        """
        self._initialise()
        self._go(0, self._world)
        while self._ready:
            number = min(self._ready)
            active = _merge(self._ready.pop(number))
            self.turn += 1
            if self.turn in self._parked or self.turn == self._stop:
                self.left.append((number, active))
                if self.turn == self._stop:
                    break
                continue
            instance = self._steps.at(number, together=active.everyone)
            if instance is None:
                self.finished[active.index] = True
                self.ledger.step(None, active.size)
                continue
            staying = self._take(instance, active)
            if staying is None:
                self._go(number + 1, active)
            elif not staying.all():
                self._go(number + 1, active.among(~staying))
            self.blocked_ranks.release()
        self.left += [(number, _merge(parts)) for number, parts in self._ready.items()]
        self.record.memory = self.memory
        self.record.ragged = self.memory.ragged
        self.record.numbers = self._steps.numbers
        if self._again:
            self.ledger.release()  # `KEPT` bounds what is left of it
        return self.record

    def _initialise(self) -> None:
        for name, form in self._plan.scenario.objects.items():
            self._keep_ragged(name, form, None)
        for name, form in self._plan.scenario.tensors.items():
            try:
                self._hold(name, form)
            except CohortError:
                if self.memory.hollow:
                    raise
                self.memory.columns.pop(name, None)
                self._keep_ragged(name, form, "float32")
        for name, column in () if self.memory.hollow else self.memory.columns.items():
            self.ledger.keep_bytes(column.values.nbytes, None)
            self.ledger.hold(2 * column.values.nbytes)
            column.shared = True
            kept = Column(
                name, column.values, column.held.copy(), column.whole, listed=column.listed
            )
            self.record.initial[name] = kept

    def _hold(self, name: str, form: Form) -> None:
        """Make the column of a name as the program begins. Raises CohortError where it has none."""
        scene = Scene(self._world, {})
        parts = (
            list(self._evaluation.branches(form, scene))
            if isinstance(form, PerRank)
            else [(self._world, form)]
        )
        for active, part in parts:
            if part is None:
                continue
            inner = Scene(active, {})
            value = self._evaluation.tensor(part, inner, "float32")
            if value is not None:
                self._evaluation.hold(name, value, active, form.mark)

    def _keep_ragged(self, name: str, form: Form, dtype: str | None) -> None:
        """Let a name hold what each rank computes by itself; `dtype` is that of tensors."""
        found = self._evaluation.compute_apart(form, self._world, dtype)
        self.ledger.keep(found, form.mark, copies=2)
        self.memory.ragged[name] = found

    def _go(self, number: int, active: ActiveRanks) -> None:
        self._ready.setdefault(number, []).append(active)

    def _take(self, instance: Instance, active: ActiveRanks) -> NDArray[np.bool_] | None:
        """Let ranks take a step; returns which of them `[L]` it blocks, None for none of them."""
        if instance.mask is not None:
            mask = instance.mask[active.index]
            if not mask.any():
                self.ledger.pass_by(instance.step, PASSED_TOGETHER)
                return None
            chosen: ActiveRanks | None = active.among(mask)
        else:
            chosen = active
        assert chosen is not None
        scene, fits = Scene(chosen, instance.variables), self._fits(instance.step)
        chosen = self._calls.find_taking(instance.step, scene, fits=fits)
        if chosen is None:
            self.ledger.pass_by(instance.step, PASSED_TOGETHER)
            return None
        if fits:
            self.ledger.step(instance.step.mark, chosen.size)
            scene.active = chosen
            blocked = self._beginning.begin(instance, scene)
        else:
            self.left.append((instance.number, chosen))
            blocked = chosen.ranks
        if blocked is None:
            return None
        staying = np.zeros(active.size, np.bool_)
        staying[active.rows(blocked)] = True
        return staying

    def _fits(self, step: Step) -> bool:
        """Whether the text of a step tells of nothing that no column can hold."""
        if step.index not in self._misfits:
            self._misfits[step.index] = find_misfit(step, hollow=self.memory.hollow)
        return self._misfits[step.index] is None


def _merge(parts: list[ActiveRanks]) -> ActiveRanks:
    if len(parts) == 1:
        return parts[0]
    ranks = np.concatenate([part.ranks for part in parts])
    return ActiveRanks(np.sort(ranks), parts[0].world_size)
