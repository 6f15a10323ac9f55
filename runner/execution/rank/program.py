"""One rank's program, taken step by step on torch; everything that happens goes on the board.

It knows the shapes of operations and no operation by name, and it knows nothing of other ranks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from runner.execution.errors import failure_of
from runner.execution.rank import arguments, polling
from runner.execution.rank.board import Record
from runner.execution.rank.values import snapshot
from runner.operations.base import GroupCreation, Local, Operation, Waiting
from runner.operations.entries import Ending
from runner.problems import ScenarioError
from runner.program import Process
from runner.scenario import PerRank, RaiseSpec
from runner.trace import Failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.evaluation import Arrays
    from runner.execution.rank.board import Board
    from runner.execution.rank.completion import Completion
    from runner.execution.rank.world import World
    from runner.plan import Creation, Plan
    from runner.program import Call
#: seconds beyond a call's own timeout that a device gets; torch's watchdog looks ten times a second
GRACE_S = 0.5
#: seconds between two looks at what is not on the device: the supervisor's word, the backend's
ASK_S = 0.01
#: kinds of failure after which a group's connections are gone
CLOSING = frozenset({"timeout", "peer_lost", "aborted"})


@cache
def shape_of(operation: type[Operation]) -> type[Operation]:
    """Return which of the shapes an operation has that are not taken alike."""
    shapes: tuple[type[Operation], ...] = (Local, Waiting, GroupCreation)
    return next((shape for shape in shapes if issubclass(operation, shape)), Operation)


class Broken(Exception):  # noqa: N818 -- not a fault: the supervisor asked for it
    """The stuck call was broken from outside, after the verdict; the account is given already."""


@dataclass(slots=True, kw_only=True)
class Pending:
    """Work that was started and may be waited for: what torch returned, what it writes."""

    work: Any
    written: tuple[str, ...]
    timeout_s: float | None = None


class Program:
    """A rank of a plan, running."""

    def __init__(
        self,
        plan: Plan,
        world: World,
        arrays: Arrays,
        *,
        board: Board,
        completion: Completion,
        broken: Callable[[], bool],
    ) -> None:
        """Hold nothing yet. `broken` tells whether the supervisor broke a call."""
        self._world = world
        self._board = board
        self._broken = broken
        self._pending: dict[str, Pending] = {}
        #: every work handle, named or not: dropping one early would change what happens
        self.works: list[Any] = []
        #: a call failed in a way that closed connections: the peers cannot go on either
        self.lost = False
        self._creations = 0
        self._completion = completion
        self._plan = plan
        self._arrays = arrays
        self.process: Process

    def _hold(self) -> None:
        """Evaluate what the rank holds before step 1, where the groups are known already."""
        world = self._world
        self.process = Process(
            self._plan,
            world.rank,
            self._arrays,
            {
                "group_rank()": world.group_rank,
                "group_size()": world.group_size,
                "group_ranks()": world.group_ranks,
            },
        )
        self._board.begin({name: self._snapshot(name) for name in sorted(self.process.held)})
        self._completion.begin()

    def _snapshot(self, name: str) -> Any:  # noqa: ANN401 -- a held value has any type
        return snapshot(self._world.torch, self.process.scope.get(name))

    # ------------------------------------------------------------------ running

    def run(self) -> str:
        """Create the groups and take every step; returns how the rank ended.

        Raises Ending where a `fault` ends the process, Broken where the supervisor broke a call.
        """
        for creation in self._plan.creations:
            if not self._create(creation):
                return "raised"
        try:
            self._hold()
        except ScenarioError as error:
            self._cannot_go_on(error)
            return "raised"
        ending = self._walk()
        return self._complete() or ending

    def _walk(self) -> str:
        """Take every step, as far as the rank gets."""
        walk = self.process.walk()
        while True:
            try:
                call = next(walk, None)
            except ScenarioError as error:
                self._cannot_go_on(error)
                return "raised"
            if call is None:
                return "finished"
            if not self._take(call):
                return "raised"

    def _create(self, creation: Creation) -> bool:
        """Create the groups of one entry of `groups:`; False where torch refuses."""
        record = Record((-1, ()), f"{creation.kind} {creation.spec.name}", True, time.monotonic())  # noqa: FBT003 -- a record's own order
        before = len(self._board.records)
        self._board.enter(record)
        try:
            self._world.create(creation)
        except Exception as error:  # noqa: BLE001 -- whatever torch raises is what is observed
            self._note(record, error)
            return False
        finally:
            self._board.leave(record)
        del self._board.records[before:]
        return True

    def _cannot_go_on(self, error: ScenarioError) -> None:
        """Note that the next step's arguments cannot be computed from what the rank holds."""
        last = self._board.records[-1].position if self._board.records else (-1, ())
        record = Record(last, "what comes next", False, time.monotonic())  # noqa: FBT003 -- a record's own order
        self._board.enter(record)
        self._note(record, error)
        self._board.leave(record)
        record.event = self._completion.mark()

    def _note(self, record: Record, error: BaseException) -> Failure:
        if record.communicates and self._broken():
            raise Broken from error
        failure = failure_of(error)
        record.failure = failure
        self.lost = self.lost or failure.kinds[0] in CLOSING
        record.raised = True
        return failure

    # ------------------------------------------------------------------ one step

    def _take(self, call: Call) -> bool:
        """Take one step; False where it raised what it does not expect."""
        operation = call.operation
        kind = None if operation is None else shape_of(type(operation))
        communicates = kind is not None and kind is not Local
        record = Record(
            (call.step.index, call.iteration), call.label, communicates, time.monotonic()
        )
        board = self._board
        board.enter(record)
        goes_on = True
        try:
            if kind is not None:
                record.writes = self._perform(call, kind)
        except Ending:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever torch raises is what is observed
            goes_on = self._note(record, error).kinds[0] in self._expected(call)
            record.writes = self._snapshots(self._stores(call))
        board.leave(record)
        if self._completion.enqueues:
            record.timeout_s = self._timeout_s(call, kind) if communicates else None
            # behind the snapshots: they may be read once it has happened
            record.event = self._completion.mark()
        if call.step.expect is not None:
            try:
                record.observed = self._observed(call)
            except ScenarioError as error:
                record.observed = {"": str(error)}
            if record.observed and self._completion.enqueues:
                board.behind(record, self._completion.mark())
        return goes_on

    def _complete(self) -> str | None:
        """Wait, after the last step, until the device has done each of them, in order.

        Returns `raised` where the device did not come to the end: an error of the backend's that no
        call could raise, its own timeout, a lost context. Raises Broken as a stuck call does.
        """
        while (record := self._board.advance()) is not None:
            end = self._done_on_device(record)
            if end == "happened":
                continue
            if end == "left" and self._broken():
                raise Broken
            self._board.fail(record, self._lost_on_device(record))
            self.lost = True
            return "raised"
        return None

    def _done_on_device(self, record: Record) -> polling.End:
        """Wait until the device is past a step, for as long as the backend itself would."""
        if self._board.fault is not None:
            return "left"
        return polling.wait(
            lambda: self._board.advance() is not record,
            deadline_s=time.monotonic() + self._allowed_s(record) + GRACE_S,
            leave=polling.seldom(lambda: self._broken() or self._fault() is not None, ASK_S),
        )

    def _fault(self) -> Exception | None:
        """Return what went wrong on the device, as far as anything there says so."""
        return self._board.fault or self._world.error()

    def _lost_on_device(self, record: Record) -> Failure:
        """Return why the device is not done with a step."""
        fault = self._fault()
        if fault is not None:
            return failure_of(fault)
        allowed_s = self._allowed_s(record)
        return Failure(
            kinds=("timeout",),
            message=f"the device had not done it after the {allowed_s:g} s that the group allows",
        )

    def _allowed_s(self, record: Record) -> float:
        return record.timeout_s or self._plan.world.timeout_s

    def _timeout_s(self, call: Call, kind: type[Operation] | None) -> float:
        """Return how long the backend itself would wait for a call, or for the work it awaits."""
        if kind is Waiting:
            operation: Any = call.operation
            awaited = (self._pending.get(name) for name in operation.handles(call.entry))
            own = [work.timeout_s for work in awaited if work and work.timeout_s is not None]
            return max(own, default=self._plan.world.timeout_s)
        stated = call.entry.arguments.get("timeout")
        return call.entry.group.timeout_s if stated is None else float(stated)

    def _observed(self, call: Call) -> dict[str, Any]:
        seen = self.process.observe(call.step)
        return {text: snapshot(self._world.torch, value) for text, value in seen.items()}

    def _expected(self, call: Call) -> tuple[str, ...]:
        """Return the kinds that the step's own `raises` allows on this rank."""
        raises = call.step.expect.raises if call.step.expect else None
        if isinstance(raises, PerRank):
            raises = self.process.choose(raises)
        return raises.kinds if isinstance(raises, RaiseSpec) else ()

    def _perform(self, call: Call, kind: type[Operation]) -> dict[str, Any]:
        """Carry a step out; returns snapshots of what it may have stored into."""
        operation: Any = call.operation
        if kind is Local:
            self._locally(call, operation)
            written = call.written
        elif kind is Waiting:
            written = self._wait(call, operation)
        elif kind is GroupCreation:
            self._create_now(call, operation)
            written = ()
        else:
            written = self._communicate(call)
        return self._snapshots(written)

    def _snapshots(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: self._snapshot(name) for name in names if name in self.process.held}

    def _stores(self, call: Call) -> tuple[str, ...]:
        """Return what a call, or the work it awaits, may have stored into before it raised."""
        operation = call.operation
        if not isinstance(operation, Waiting):
            return call.written
        awaited = (self._pending.get(name) for name in operation.handles(call.entry))
        return tuple(sorted({name for work in awaited if work for name in work.written}))

    def _locally(self, call: Call, operation: Local) -> None:
        duration_s = operation.duration_s(call.entry)
        if duration_s > 0:
            time.sleep(duration_s)
        if operation.calls_torch:
            operation.execute(self._world.dist, arguments.convert(self._world, call))
        operation.run(self.process, call.entry)

    def _communicate(self, call: Call) -> tuple[str, ...]:
        assert call.operation is not None  # noqa: S101 -- an `expect` alone does not come here
        work = call.operation.execute(self._world.dist, arguments.convert(self._world, call))
        if not call.asynchronous:
            return call.written
        self.works.append(work)
        handle = call.step.handle
        if handle is not None:
            timeout_s = call.entry.group.timeout_s
            self._pending[handle] = Pending(work=work, written=call.written, timeout_s=timeout_s)
            self.process.handles.add(handle)
        return ()

    def _wait(self, call: Call, operation: Waiting) -> tuple[str, ...]:
        written: set[str] = set()
        for name in operation.handles(call.entry):
            pending = self._pending.get(name)
            if pending is None:
                continue
            for work in pending.work if isinstance(pending.work, list) else [pending.work]:
                work.wait()
            written.update(pending.written)
        return tuple(sorted(written))

    def _create_now(self, call: Call, operation: GroupCreation) -> None:
        group = operation.group(call.entry, self._world.plan.scenario.timeout_s)
        group = replace(group, key=f"{group.name}#{self._creations}")
        self._creations += 1
        handle = operation.execute(self._world.dist, arguments.convert(self._world, call))
        self._world.adopt(group, handle)
        self.process.join(group)
