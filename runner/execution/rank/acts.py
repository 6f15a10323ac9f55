"""What a step does, made ready: an *act* is done once, or again and again, and names what it wrote.

Everything that can be settled before the step is taken is settled when its act is made: torch's
arguments, the function, what it stores into. Knows the shapes of operations and none by name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from runner.execution.rank import arguments
from runner.execution.rank.objects import bounded
from runner.operations.base import GroupCreation, Local, Operation, Waiting
from runner.operations.wait import held_by

if TYPE_CHECKING:
    from types import ModuleType

    from runner.call import Call
    from runner.execution.rank.world import World
    from runner.program import Process

#: carries a step out; returns the names that it may have stored into by then
Act: TypeAlias = Callable[[], tuple[str, ...]]


@cache
def shape_of(operation: type[Operation]) -> type[Operation]:
    """Return which of the shapes an operation has that are not taken alike."""
    shapes: tuple[type[Operation], ...] = (Local, Waiting, GroupCreation)
    return next((shape for shape in shapes if issubclass(operation, shape)), Operation)


@dataclass(slots=True)
class Pending:
    """Work that was started and may be waited for: what torch returned, what it writes."""

    work: Any
    written: tuple[str, ...]
    timeout_s: float
    waited: bool = False


class Acts:
    """Makes the acts of one rank, and keeps the work that they start as long as a script would."""

    def __init__(self, world: World, process: Process, pending: dict[str, Pending]) -> None:
        """Start nothing yet. `pending` is the work that a name keeps.

        A handle lives as a variable of a script does: what no step names is dropped as soon as the
        call returns, and what a name held once it holds something else. On Gloo that takes a
        message back which its peer has not met.
        """
        self._world = world
        self._process = process
        self._pending = pending
        self._creations = 0

    def act(self, call: Call, late: Mapping[str, str]) -> Act:
        """Return what a call does. Raises what torch, or the language, refuses before it.

        `late` maps arguments to names: each time the act is done, torch gets the tensor that the
        name holds by then.
        """
        operation: Any = call.operation
        if operation is None:
            return _nothing
        shape = shape_of(operation.__class__)
        if shape is Local:
            return self._locally(call, operation)
        if shape is Waiting:
            return self._waiting(operation.handles(call.entry))
        if shape is GroupCreation:
            return lambda: self._create(call, operation)
        made = self._bound(call, late)
        return self._starting(call, made) if call.asynchronous else _doing(made, call.written)

    def stores(self, call: Call) -> tuple[str, ...]:
        """Return what a call, or the work it awaits, may have stored into before it raised."""
        names = call.written
        if isinstance(call.operation, Waiting):
            names = _written(self._awaited(call))
        return tuple(name for name in names if name in self._process.held)

    def timeout_s(self, call: Call) -> float:
        """Return how long the backend itself would wait for a call, or for the work it awaits."""
        if isinstance(call.operation, Waiting):
            own = (pending.timeout_s for pending in self._awaited(call))
            return max(own, default=self._world.plan.world.timeout_s)
        stated = call.entry.arguments.get("timeout")
        return call.entry.group.timeout_s if stated is None else float(stated)

    def _awaited(self, call: Call) -> list[Pending]:
        operation: Any = call.operation
        return self._named(operation.handles(call.entry))

    def _named(self, handles: tuple[str, ...]) -> list[Pending]:
        return [
            pending
            for name in handles
            for pending in held_by(name, self._pending, lambda pending: pending.waited)
        ]

    # ------------------------------------------------------------------ by shape

    def _bound(self, call: Call, late: Mapping[str, str]) -> Callable[[], Any]:
        """Return torch's call; the arguments `late` are looked up when it is made."""
        operation: Any = call.operation
        given = arguments.convert(self._world, call)
        dist, scope = self._world.dist, self._process.scope
        if type(operation).execute is Operation.execute:
            made: Callable[..., Any] = operation.bound(dist, given | dict.fromkeys(late))
        else:
            made = _executing(operation, dist, given)
        if operation.takes_objects:
            made = bounded(self._world.torch, made)
        if not late:
            return made
        if len(late) > 1:
            return lambda: made(**{param: scope[name] for param, name in late.items()})
        ((param, name),) = late.items()
        return lambda: made(**{param: scope[name]})

    def _locally(self, call: Call, operation: Local) -> Act:
        process, entry, written = self._process, call.entry, call.written
        duration_s = operation.duration_s(entry)

        def act() -> tuple[str, ...]:
            if duration_s > 0:
                time.sleep(duration_s)
            if operation.calls_torch:
                operation.execute(self._world.dist, arguments.convert(self._world, call))
            operation.run(process, entry)
            return written

        return act

    def _starting(self, call: Call, made: Callable[[], Any]) -> Act:
        handle, written = call.handle, call.written
        timeout_s = call.entry.group.timeout_s

        def act() -> tuple[str, ...]:
            work = made()
            if handle is not None:
                self._pending[handle] = Pending(work, written, timeout_s)
                self._process.keep(call)
            return ()  # nothing else holds the work, here or in torch

        return act

    def _waiting(self, handles: tuple[str, ...]) -> Act:
        def act() -> tuple[str, ...]:
            awaited = self._named(handles)
            for pending in awaited:
                for work in pending.work if isinstance(pending.work, list) else (pending.work,):
                    work.wait()
                pending.waited = True
            return awaited[0].written if len(awaited) == 1 else _written(awaited)

        return act

    def _create(self, call: Call, operation: GroupCreation) -> tuple[str, ...]:
        world = self._world
        group = operation.group(call.entry, world.plan.scenario.timeout_s)
        group = replace(group, key=f"{group.name}#{self._creations}")
        self._creations += 1
        world.adopt(group, operation.execute(world.dist, arguments.convert(world, call)))
        self._process.join(group)
        return ()


def _nothing() -> tuple[str, ...]:
    """Be a step that is an `expect` alone."""
    return ()


def _executing(operation: Operation, dist: ModuleType, given: dict[str, Any]) -> Callable[..., Any]:
    """Return the call of an operation that calls torch in its own way."""
    return lambda **anew: operation.execute(dist, given | anew)


def _doing(made: Callable[[], Any], written: tuple[str, ...]) -> Act:
    def act() -> tuple[str, ...]:
        made()
        return written

    return act


def _written(awaited: list[Pending]) -> tuple[str, ...]:
    return tuple(sorted({name for pending in awaited for name in pending.written}))
