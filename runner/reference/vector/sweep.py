"""The engine: the ranks that are furthest behind take their next step, all at once.

Ranks that a step blocks stand until what they wait for is done; the others go on. Who is released
is behind, and comes first, so that ranks part and join again (as the lanes of a GPU do).

There is no clock: nothing in these programs takes time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.language.functions import numpy_arrays
from runner.operations.base import Collective, Local, Operation, PointToPoint, Waiting
from runner.reference.ledger import Ledger
from runner.reference.vector.calls import Calls
from runner.reference.vector.collectives import Collectives, Entering, storing
from runner.reference.vector.envelopes import Envelopes, group_of
from runner.reference.vector.evaluating import Evaluation, looked_at
from runner.reference.vector.flights import Flights, check_together
from runner.reference.vector.mail import Mail
from runner.reference.vector.memory import Memory
from runner.reference.vector.record import Batch, Change, Link, Record, Said
from runner.reference.vector.storing import put_in_place
from runner.reference.vector.unrolled import Instance, Unrolled
from runner.reference.vector.values import LARGEST, Active, Column, Stack, View, leave
from runner.reference.vector.works import Post, Rows, Stand, Work
from runner.scenario import PerRank
from runner.scenario import Record as Assignments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from runner.language.limits import Limits
    from runner.plan import Plan
    from runner.reference.vector.compiling import Scene
    from runner.scenario import Expectation, Step

#: bytes of values that are kept for events; beyond, they are computed again where one is looked at
KEPT = 2**28


class Sweep:
    """The state of all ranks."""

    def __init__(
        self, plan: Plan, limits: Limits, watched: NDArray[np.bool_] | None = None
    ) -> None:
        """Bind the initial values; `watched` `[W]` are the ranks whose values are kept."""
        self._plan = plan
        self._ledger = Ledger(limits)
        self._flights = Flights(plan.world_size)
        self._memory = Memory(plan, self._ledger, self._flights)
        self._evaluation = Evaluation(plan, numpy_arrays(limits), self._memory, limits)
        self._calls = Calls(plan, self._evaluation, self._memory)
        self._envelopes = Envelopes(plan, self._evaluation, self._memory)
        self._collectives = Collectives(plan, self._memory)
        self._mail = Mail()
        self._world = Active(np.arange(plan.world_size), plan.world_size)
        self._steps = Unrolled(plan.scenario.steps, self._evaluation, self._world)
        self.record = Record(plan, KEPT, watched)
        self._ready: dict[int, list[Active]] = {}
        self._released: list[NDArray[np.int64]] = []
        #: how many works a standing rank waits for, and in which stand it is
        self._waiting = np.zeros(plan.world_size, np.int64)
        self._standing = np.full(plan.world_size, -1, np.int64)
        self._stands: dict[int, Stand] = {}
        self._stood = 0
        #: the works whose handle somebody has yet to wait for
        self._unwaited: dict[int, Work] = {}
        self._handles: dict[str, NDArray[np.int64]] = {}
        self._works: list[Work] = []
        #: bytes that are kept for what is expected beside steps
        self._beside = 0

    # ------------------------------------------------------------------ the loop

    def run(self) -> Record:
        """Take every step. Raises Beyond where the program is none for this engine."""
        self._initialise()
        self._go(0, self._world)
        finished = 0
        while self._ready:
            number = min(self._ready)
            active = _merged(self._ready.pop(number))
            instance = self._steps.at(number)
            if instance is None:
                finished += active.size
                self._ledger.step(None, active.size)
                continue
            staying = self._take(instance, active)
            if staying is None:
                self._go(number + 1, active)
            elif not staying.all():
                self._go(number + 1, active.among(~staying))
            if self._released:
                self._release()
        if finished < self._plan.world_size:
            leave("ranks that are blocked")
        if not self._mail.empty or not self._collectives.empty or self._unwaited:
            leave("work that is left over")
        self.record.memory = self._memory
        return self.record

    def _initialise(self) -> None:
        scene = self._evaluation.scene(self._world, {})
        for name, form in self._plan.scenario.tensors.items():
            parts = (
                list(self._evaluation.branches(form, scene))
                if isinstance(form, PerRank)
                else [(self._world, form)]
            )
            for active, part in parts:
                if part is None:
                    continue
                inner = self._evaluation.scene(active, {})
                value = self._evaluation.tensor(part, inner, "float32")
                if value is not None:
                    self._memory.hold(name, active, value, form.mark)
        for name, column in self._memory.columns.items():
            self._ledger.keep_bytes(column.values.nbytes, None)
            column.shared = True
            kept = Column(name, column.values, column.held.copy(), column.whole)
            self.record.initial[name] = kept

    def _go(self, number: int, active: Active) -> None:
        self._ready.setdefault(number, []).append(active)

    def _take(self, instance: Instance, active: Active) -> NDArray[np.bool_] | None:
        """Let ranks take a step; returns which of them `[L]` it blocks, None for none of them."""
        if instance.mask is not None:
            mask = instance.mask[active.index]
            if not mask.any():
                return None
            chosen: Active | None = active.among(mask)
        else:
            chosen = active
        assert chosen is not None  # noqa: S101 -- some rank is left
        scene = self._evaluation.scene(chosen, instance.variables)
        chosen = self._calls.taking(instance.step, scene)
        if chosen is None:
            return None
        self._ledger.step(instance.step.mark, chosen.size)
        scene.active = chosen
        blocked = self._begin(instance, scene)
        if blocked is None:
            return None
        staying = np.zeros(active.size, np.bool_)
        staying[active.rows(blocked)] = True
        return staying

    def _begin(self, instance: Instance, scene: Scene) -> NDArray[np.int64] | None:
        """Begin a call; returns the ranks that it blocks."""
        operation = instance.step.operation
        if operation is None:
            self._note(instance, scene, Said())
            return None
        for shape, begin in _SHAPES:
            if isinstance(operation, shape):
                blocked: NDArray[np.int64] | None = begin(self, instance, scene, operation)
                return blocked
        return leave("an operation of another shape")

    # ------------------------------------------------------------------ the shapes of operations

    def _local(self, instance: Instance, scene: Scene, operation: Operation) -> None:
        assignments = next(iter(instance.step.arguments.values()))
        if not isinstance(assignments, Assignments):
            leave("a local operation that takes time")
        if type(operation).refuse is not Operation.refuse:
            leave("a local operation that may be refused")
        before = self._before(instance.step, scene, tuple(assignments.fields))
        changes: dict[str, Change] = {}
        for name, form in assignments.fields.items():
            self._flights.check_name(name, scene.active)
            value = self._evaluation.tensor(form, scene)
            if value is None:
                leave("a name that gets no value")
            values = self._memory.hold(name, scene.active, value, instance.step.mark)
            changes[name] = Change(name, scene.active, None, values)
        names, stored = tuple(sorted(changes)), tuple(changes.values())
        self._note(instance, scene, Said(), names, stored, before=before)

    def _messages(
        self, instance: Instance, scene: Scene, operation: PointToPoint
    ) -> NDArray[np.int64] | None:
        posts, arguments, group = self._envelopes.of(instance.step, operation, scene)
        keys = tuple(each.key for each in self._plan.names[group])
        numbers = self._memory.group_numbers(group)
        used: list[tuple[View, bool]] = []
        for post in posts:
            if isinstance(post.payload, View):
                self._flights.check(post.payload, writes=not post.sends)
                used.append((post.payload, not post.sends))
                post.target = None if post.sends else post.payload
        check_together(used)
        names = tuple(sorted({view.column.name for view, writes in used if writes}))
        work = Work(instance=instance, active=scene.active, posts=[*posts], names=names)
        self._ledger.keep_bytes(sum(post.peers.nbytes for post in posts), instance.step.mark)
        links = tuple(Link(keys, numbers, 0, post.sends, post.peers, post.tags) for post in posts)
        said = Said(arguments, group, links)
        self._start(scene, work, used, said)
        for post in posts:
            for other, rows in self._mail.post(group, post):
                self._done(other, rows)
        return self._stay(scene, work, said)

    def _collective(
        self, instance: Instance, scene: Scene, operation: Collective
    ) -> NDArray[np.int64] | None:
        """Let ranks enter: those together on which the call stores into the same arguments."""
        found, group = self._calls.collective(instance.step, operation, scene)
        numbers = self._memory.group_numbers(group)[scene.active.index]
        if numbers.min() < 0:
            leave("a collective of others")
        if type(operation).writes is Operation.writes:
            stored = {param.name for param in operation.params if param.writes}
            return self._enter(instance, scene, operation, found, stored)
        apart: dict[tuple[str, ...], list[int]] = {}
        groups = self._plan.names[group]
        for row, rank in enumerate(scene.active.ranks.tolist()):
            key = storing(operation, groups[int(numbers[row])], rank, found, row)
            apart.setdefault(key, []).append(row)
        blocked = []
        for key, rows in apart.items():
            part = Active(scene.active.ranks[rows], scene.active.world_size)
            inner = self._evaluation.scene(part, scene.variables)
            found, _ = self._calls.collective(instance.step, operation, inner)
            left = self._enter(instance, inner, operation, found, set(key))
            blocked += [] if left is None else [left]
        return _all_of(blocked)

    def _enter(
        self,
        instance: Instance,
        scene: Scene,
        operation: Collective,
        found: dict[str, Any],
        stored: set[str],
    ) -> NDArray[np.int64] | None:
        group = group_of(instance.step)
        used = [(value, name in stored) for name, value in found.items() if isinstance(value, View)]
        for view, writes in used:
            self._flights.check(view, writes=writes)
        numbers = self._memory.group_numbers(group)
        inside = numbers[scene.active.index]
        post = Entering(active=scene.active, operation=operation, numbers=inside, arguments=found)
        names = tuple(sorted({view.column.name for view, writes in used if writes}))
        work = Work(instance=instance, active=scene.active, posts=[post], names=names)
        keys = tuple(each.key for each in self._plan.names[group])
        position = self._collectives.position(group, scene.active)
        plain = {
            name: value for name, value in found.items() if not isinstance(value, Stack | View)
        }
        said = Said(plain, group, (Link(keys, numbers, position),))
        self._start(scene, work, used, said)
        for other, rows in self._collectives.enter(group, post):
            self._done(other, rows)
        return self._stay(scene, work, said)

    def _wait(
        self, instance: Instance, scene: Scene, operation: Waiting
    ) -> NDArray[np.int64] | None:
        """Let ranks wait: for the same works together, for others apart."""
        names, arguments = self._calls.handles(instance.step, operation, scene)
        tables = [self._handles[name] for name in names if name in self._handles]
        table = np.stack([each[scene.active.index] for each in tables])
        apart = {tuple(column) for column in table[:, :1].T.tolist()}
        if (table != table[:, :1]).any():
            apart = {tuple(column) for column in table.T.tolist()}
        blocked = []
        for numbers in sorted(apart):
            same = (table == np.asarray(numbers)[:, np.newaxis]).all(axis=0)
            together = scene.active.among(same)
            works = tuple(self._works[number] for number in numbers if number >= 0)
            inner = self._evaluation.scene(together, scene.variables)
            said = Said(arguments)
            stand = Stand(instance=instance, active=together, works=works, said=said)
            left = self._stand(stand, inner)
            if left is not None:
                blocked.append(left)
        return _all_of(blocked)

    # ------------------------------------------------------------------ works

    def _start(
        self, scene: Scene, work: Work, used: Iterable[tuple[View, bool]], said: Said
    ) -> None:
        """Note an asynchronous call, which holds its tensors until it is waited for."""
        if not _is_asynchronous(work, said):
            return
        for view, writes in used:
            self._flights.take(work, view, writes=writes)
        work.flown = tuple({view.column.name for view, _ in used})
        work.number = len(self._works)
        self._works.append(work)
        self._unwaited[work.number] = work
        handle = work.instance.step.handle
        if handle is not None:
            nobody = np.full(self._plan.world_size, -1, np.int64)
            self._handles.setdefault(handle, nobody)[scene.active.index] = work.number
        self._note(work.instance, scene, said)

    def _stay(self, scene: Scene, work: Work, said: Said) -> NDArray[np.int64] | None:
        """Let the ranks of a blocking call stand until it is done; returns who stands."""
        if _is_asynchronous(work, said):
            return None
        stand = Stand(instance=work.instance, active=scene.active, works=(work,), said=said)
        return self._stand(stand, scene)

    def _stand(self, stand: Stand, scene: Scene) -> NDArray[np.int64] | None:
        """Complete a call on the ranks for which all is done; returns the ranks that must stand."""
        active = stand.active
        left = np.zeros(active.size, np.int64)
        for work in stand.works:
            rows = work.active.rows(active.ranks) if active is not work.active else None
            work.waited[slice(None) if rows is None else rows] = True
            if work.open:
                left += (work.left if rows is None else work.left[rows]) > 0
        if not left.any():
            self._finish(stand, scene)
            return None
        done = left == 0
        if done.any():
            ready = active.among(done)
            self._finish(stand, self._evaluation.scene(ready, scene.variables))
        standing = active.among(~done)
        for work in stand.works:
            rows = work.active.rows(standing.ranks)
            work.awaited[rows] = work.left[rows] > 0
        self._stood += 1
        self._stands[self._stood] = stand
        self._waiting[standing.index] = left[~done]
        self._standing[standing.index] = self._stood
        return standing.ranks

    def _done(self, post: Post, rows: Rows) -> None:
        """Note that rows of a post are done; ranks that stand for nothing else are released."""
        work = post.work
        assert work is not None  # noqa: S101 -- every post belongs to a work
        finished = work.advance(rows)
        awaited = work.awaited if finished is None else work.awaited[finished]
        if not awaited.any():
            return
        ranks = (work.active.ranks if finished is None else work.active.ranks[finished])[awaited]
        work.awaited[work.active.rows(ranks)] = False
        self._waiting[ranks] -= 1
        free = ranks[self._waiting[ranks] == 0]
        if len(free):
            self._released.append(free)

    def _release(self) -> None:
        """Let ranks go on whose call has nothing left to wait for."""
        ranks = np.sort(np.concatenate(self._released))
        self._released = []
        places = self._standing[ranks]
        for place in np.unique(places).tolist():
            stand = self._stands[place]
            active = Active(ranks[places == place], self._plan.world_size)
            self._finish(stand, self._evaluation.scene(active, stand.instance.variables))
            self._go(stand.instance.number + 1, active)
            self._standing[active.index] = -1
            if not (self._standing == place).any():
                del self._stands[place]

    def _finish(self, stand: Stand, scene: Scene) -> None:
        """Store what a call's works brought, on the ranks for which all is done."""
        names = tuple(sorted({name for work in stand.works for name in work.names}))
        before = self._before(stand.instance.step, scene, names)
        changes: list[Change] = []
        slack: dict[str, Any] = {}
        for work in stand.works:
            rows = None if scene.active is work.active else work.active.rows(scene.active.ranks)
            at = slice(None) if rows is None else rows
            if work.stored[at].any():
                if not work.stored[at].all():
                    leave("work that some ranks wait for again")
                continue  # a wait for what was waited for already
            work.stored[at] = True
            for post in work.posts:
                changes += put_in_place(post, scene.active, rows, slack)
            if work.stored.all():
                work.posts = []
            self._flights.give_back(work, scene.active)
        said = stand.said
        if scene.active is not stand.active:
            said = said.among(stand.active.rows(scene.active.ranks))
        self._note(stand.instance, scene, said, names, tuple(changes), slack=slack, before=before)
        for work in stand.works:
            if work.number in self._unwaited and work.waited.all():
                del self._unwaited[work.number]

    # ------------------------------------------------------------------ the record

    def _before(self, step: Step, scene: Scene, names: tuple[str, ...]) -> dict[str, Any] | None:
        """Return what the ranks hold, where something is expected beside the step."""
        if step.expect is None:
            return None
        return self._held(step.expect, names, scene.active)

    def _held(self, expect: Expectation, stored: tuple[str, ...], active: Active) -> dict[str, Any]:
        """Return what the ranks hold in the names that a step stores into, or is asked about."""
        found = {}
        names = looked_at(expect).union(stored)
        for name, column in self._memory.columns.items():
            if name in names:
                values = np.array(column.values[active.index])
                self._beside += values.nbytes
                found[name] = (values, column.held[active.index].copy())
        if self._beside > LARGEST:
            leave("much that is expected beside steps")
        return found

    def _note(
        self,
        instance: Instance,
        scene: Scene,
        said: Said,
        names: tuple[str, ...] = (),
        changes: tuple[Change, ...] = (),
        *,
        slack: Mapping[str, Any] | None = None,
        before: dict[str, Any] | None = None,
    ) -> None:
        """Note that ranks took a step."""
        batch = Batch(instance, scene.active, names, said, changes, slack or None)
        if instance.step.expect is not None:
            for name in looked_at(instance.step.expect):
                self._flights.check_look(name, scene.active)
            batch.after = self._held(instance.step.expect, names, scene.active)
            batch.observed = self._calls.observed(instance.step, scene)
            batch.before = batch.after if before is None else before
        self.record.add(batch)


def _is_asynchronous(work: Work, said: Said) -> bool:
    operation = work.instance.step.operation
    assert operation is not None  # noqa: S101 -- only operations start work
    return operation.asynchronous or bool(said.arguments.get("async_op"))


def _all_of(parts: list[NDArray[np.int64]]) -> NDArray[np.int64] | None:
    """Return the ranks that parts of a step block; None for none of them."""
    return np.sort(np.concatenate(parts)) if parts else None


def _merged(parts: list[Active]) -> Active:
    if len(parts) == 1:
        return parts[0]
    ranks = np.concatenate([part.ranks for part in parts])
    return Active(np.sort(ranks), parts[0].world_size)


_SHAPES: tuple[tuple[type[Operation], Any], ...] = (
    (Local, Sweep._local),  # noqa: SLF001 -- its own table
    (Collective, Sweep._collective),  # noqa: SLF001
    (PointToPoint, Sweep._messages),  # noqa: SLF001
    (Waiting, Sweep._wait),  # noqa: SLF001
)
