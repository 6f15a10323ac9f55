"""Who stands in a call until its work is done, and what work is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.operations.base import PointToPoint
from runner.reference.vector.storing import put_in_place
from runner.reference.vector.values import Active, View, leave
from runner.reference.vector.works import Post, Rows, Stand, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from runner.plan import Plan
    from runner.reference.vector.evaluating import Evaluation
    from runner.reference.vector.flights import Flights
    from runner.reference.vector.leaves import Scene
    from runner.reference.vector.noting import Notes
    from runner.reference.vector.record import Change, Said


class Standing:
    """The ranks that a call blocks, and the works of asynchronous calls."""

    def __init__(
        self,
        plan: Plan,
        evaluation: Evaluation,
        flights: Flights,
        notes: Notes,
        go: Callable[[int, Active], None],
    ) -> None:
        """Begin with nobody; `go` lets ranks that are released take the step of a number."""
        self._plan = plan
        self._evaluation = evaluation
        self._flights = flights
        self._notes = notes
        self._go = go
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

    @property
    def empty(self) -> bool:
        """Whether every work was waited for."""
        return not self._unwaited

    def handles(self, names: Iterable[str], active: Active) -> NDArray[np.int64]:
        """Return the number of each rank's work by handle `[handles, L]`; -1 where it has none."""
        tables = [self._handles[name] for name in names if name in self._handles]
        return np.stack([each[active.index] for each in tables])

    def works(self, numbers: Iterable[int]) -> tuple[Work, ...]:
        """Return the works of these numbers."""
        return tuple(self._works[number] for number in numbers if number >= 0)

    def start(
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
        self._notes.note(work.instance, scene, said)

    def stay(self, scene: Scene, work: Work, said: Said) -> NDArray[np.int64] | None:
        """Let the ranks of a blocking call stand until it is done; returns who stands."""
        if _is_asynchronous(work, said):
            return None
        stand = Stand(instance=work.instance, active=scene.active, works=(work,), said=said)
        return self.stand(stand, scene)

    def stand(self, stand: Stand, scene: Scene) -> NDArray[np.int64] | None:
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

    def done(self, post: Post, rows: Rows) -> None:
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

    def release(self) -> None:
        """Let ranks go on whose call has nothing left to wait for."""
        if not self._released:
            return
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
        before = self._notes.before(stand.instance.step, scene, names)
        changes: list[Change] = []
        slack: dict[str, Any] = {}
        for work in stand.works:
            rows = None if scene.active is work.active else work.active.rows(scene.active.ranks)
            at = slice(None) if rows is None else rows
            if work.stored[at].any():
                if isinstance(work.instance.step.operation, PointToPoint):
                    leave("a message that is waited for again")
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
        self._notes.note(
            stand.instance, scene, said, names, tuple(changes), slack=slack, before=before
        )
        for work in stand.works:
            if work.number in self._unwaited and work.waited.all():
                del self._unwaited[work.number]


def _is_asynchronous(work: Work, said: Said) -> bool:
    operation = work.instance.step.operation
    assert operation is not None  # noqa: S101 -- only operations start work
    return operation.asynchronous or bool(said.arguments.get("async_op"))
