"""How ranks begin a call: what each shape of operation does when many take it at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.forms import Record as Assignments
from runner.operations.base import Collective, Local, Operation, PointToPoint, Waiting
from runner.reference.vector.collectives import Collectives, Entering, storing
from runner.reference.vector.envelopes import Envelopes, group_of
from runner.reference.vector.flights import check_together
from runner.reference.vector.mail import Mail
from runner.reference.vector.record import Change, Link, Said
from runner.reference.vector.values import Active, Stack, View, leave
from runner.reference.vector.works import Stand, Work

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runner.plan import Plan
    from runner.reference.ledger import Ledger
    from runner.reference.vector.calls import Calls
    from runner.reference.vector.evaluating import Evaluation
    from runner.reference.vector.flights import Flights
    from runner.reference.vector.leaves import Scene
    from runner.reference.vector.memory import Memory
    from runner.reference.vector.noting import Notes
    from runner.reference.vector.standing import Standing
    from runner.reference.vector.unrolled import Instance


class Beginning:
    """Begins the calls of one plan; who is blocked stands in `standing`."""

    def __init__(
        self,
        plan: Plan,
        *,
        ledger: Ledger,
        flights: Flights,
        memory: Memory,
        evaluation: Evaluation,
        calls: Calls,
        notes: Notes,
        standing: Standing,
    ) -> None:
        """Begin with no call made."""
        self._plan = plan
        self._ledger = ledger
        self._flights = flights
        self._memory = memory
        self._evaluation = evaluation
        self._calls = calls
        self._notes = notes
        self._standing = standing
        self._envelopes = Envelopes(plan, evaluation, memory)
        self._collectives = Collectives(plan, memory)
        self._mail = Mail()

    @property
    def empty(self) -> bool:
        """Whether every message met another, and every collective all its members."""
        return self._mail.empty and self._collectives.empty

    def begin(self, instance: Instance, scene: Scene) -> NDArray[np.int64] | None:
        """Begin a call; returns the ranks that it blocks."""
        operation = instance.step.operation
        if operation is None:
            self._notes.note(instance, scene, Said())
            return None
        for shape, begin in _SHAPES:
            if isinstance(operation, shape):
                blocked: NDArray[np.int64] | None = begin(self, instance, scene, operation)
                return blocked
        return leave("an operation of another shape")

    def _local(self, instance: Instance, scene: Scene, operation: Operation) -> None:
        assignments = next(iter(instance.step.arguments.values()))
        if not isinstance(assignments, Assignments):
            leave("a local operation that takes time")
        if type(operation).refuse is not Operation.refuse:
            leave("a local operation that may be refused")
        before = self._notes.before(instance.step, scene, tuple(assignments.fields))
        changes: dict[str, Change] = {}
        for name, form in assignments.fields.items():
            self._flights.check_name(name, scene.active)
            value = self._evaluation.tensor(form, scene)
            if value is None:
                leave("a name that gets no value")
            values = self._memory.hold(name, scene.active, value, instance.step.mark)
            changes[name] = Change(name, scene.active, None, values)
        names, stored = tuple(sorted(changes)), tuple(changes.values())
        self._notes.note(instance, scene, Said(), names, stored, before=before)

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
        self._standing.start(scene, work, used, said)
        for post in posts:
            for other, rows in self._mail.post(group, post):
                self._standing.done(other, rows)
        return self._standing.stay(scene, work, said)

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
        self._standing.start(scene, work, used, said)
        for other, rows in self._collectives.enter(group, post):
            self._standing.done(other, rows)
        return self._standing.stay(scene, work, said)

    def _wait(
        self, instance: Instance, scene: Scene, operation: Waiting
    ) -> NDArray[np.int64] | None:
        """Let ranks wait: for the same works together, for others apart."""
        names, arguments = self._calls.handles(instance.step, operation, scene)
        table = self._standing.handles(names, scene.active)
        apart = {tuple(column) for column in table[:, :1].T.tolist()}
        if (table != table[:, :1]).any():
            apart = {tuple(column) for column in table.T.tolist()}
        blocked = []
        for numbers in sorted(apart):
            same = (table == np.asarray(numbers)[:, np.newaxis]).all(axis=0)
            together = scene.active.among(same)
            works = self._standing.works(numbers)
            inner = self._evaluation.scene(together, scene.variables)
            said = Said(arguments)
            stand = Stand(instance=instance, active=together, works=works, said=said)
            left = self._standing.stand(stand, inner)
            if left is not None:
                blocked.append(left)
        return _all_of(blocked)


def _all_of(parts: list[NDArray[np.int64]]) -> NDArray[np.int64] | None:
    """Return the ranks that parts of a step block; None for none of them."""
    return np.sort(np.concatenate(parts)) if parts else None


_SHAPES: tuple[tuple[type[Operation], Any], ...] = (
    (Local, Beginning._local),  # noqa: SLF001 -- its own table
    (Collective, Beginning._collective),  # noqa: SLF001
    (PointToPoint, Beginning._messages),  # noqa: SLF001
    (Waiting, Beginning._wait),  # noqa: SLF001
)
