"""The program of one rank, taken step by step on torch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Mapping
from datetime import timedelta
from functools import cache, partial
from importlib import import_module
from inspect import signature
from types import ModuleType
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.errors import ScenarioError
from torch_scenarios.execution.backends import failure_of, name_lack
from torch_scenarios.execution.pickles import CheckpointUnpickler, ExactUnpickler, PlainUnpickler
from torch_scenarios.expressions.arrays import Arrays
from torch_scenarios.expressions.params import Param
from torch_scenarios.expressions.values import Expression, PerRank
from torch_scenarios.model.plan import Creation, Plan
from torch_scenarios.model.process import UNKNOWN, Call, KnownCall, KnownCalls, Process, key
from torch_scenarios.model.scenario import RaiseSpec, Step
from torch_scenarios.model.trace import Failure
from torch_scenarios.operations.base import (
    Compound,
    Departure,
    GroupCreation,
    IssuedCall,
    Local,
    Operation,
    PremulSum,
    ProcessExit,
    RemoteCall,
    Waiting,
)
from torch_scenarios.operations.wait import find_work, output_of
from torch_scenarios.strategies import Model
from torch_scenarios.strategies.real import TorchModel, recorder
from torch_scenarios.vocabulary import WORLD
from torch_scenarios.worker import device
from torch_scenarios.worker.board import Board, Copies, Site, TakenStep, is_large
from torch_scenarios.worker.calls import Service
from torch_scenarios.worker.device import Completion
from torch_scenarios.worker.world import UNCONNECTED, World

# -------------------------------------------------------------------------------------------------
# What a call raised: noted in the rank's own words, unless the supervisor broke the call.

#: kinds of failure after which a group's connections are gone
CLOSING = frozenset({"timeout", "peer_lost", "aborted"})


class BrokenCallError(Exception):
    """The stuck call was broken from outside, after the verdict; the account is given already."""


class Failures:
    """What went wrong on one rank."""

    def __init__(
        self,
        broken: Callable[[], bool],
        mend: Callable[[BaseException], None],
        kind_of_group: Callable[[], type],
    ) -> None:
        """Know of nothing.

        `broken` tells whether the supervisor broke a call; `mend` takes back what a call that
        raised left behind in the backend; `kind_of_group` gives the class of the world's group.
        """
        self.broken = broken
        self._mend = mend
        self._kind_of_group = kind_of_group
        #: a call failed in a way that closed connections: the peers cannot go on either
        self.lost = False

    def note(self, record: TakenStep, error: BaseException) -> Failure:
        """Note what a step raised; raises BrokenCallError where the supervisor is why it did."""
        if record.site.communicates:
            self._mend(error)
            if self.broken():
                raise BrokenCallError from error
        failure = failure_of(error)
        if record.site.communicates:
            function, _, _ = record.site.label.partition(" ")
            failure = name_lack(failure, error, function, self._kind_of_group())
        record.failure = failure
        self.lost = self.lost or failure.kinds[0] in CLOSING
        return failure


# -------------------------------------------------------------------------------------------------
# What an object collective takes from other ranks: plain values, of a bounded size.
#
# torch sends an object as two tensors, its size and its pickle. It makes room for whatever size
# arrives, and unpickles whatever bytes do. A scenario can let a tensor arrive in their place, so
# that both are a stranger's words: here they are taken as such.

#: bytes that one call may make room for: far more than the objects of a scenario file take
MOST_BYTES = 1 << 28


def plain_only(dist: Any) -> None:
    """Let torch's object collectives of this process unpickle plain values alone, for good.

    All of them read by the name `_unpickler` of `distributed_c10d` (torch 2.6 to 2.14).
    """
    dist.distributed_c10d._unpickler = PlainUnpickler


def bound_memory(torch: ModuleType, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call of torch in which no tensor is made, or grown, to more than MOST_BYTES.

    The sizes that arrive are used in `torch.empty` and `Tensor.resize_`, and nowhere else.
    """
    from torch.overrides import TorchFunctionMode

    class Bounded(TorchFunctionMode):
        def __torch_function__(
            self,
            func: Callable[..., Any],
            types: object,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:
            if func is torch.empty:
                refuse(args)
            elif func is torch.Tensor.resize_:
                refuse(args[1:])
            return func(*args, **(kwargs or {}))

    def within(*args: Any, **kwargs: Any) -> Any:
        with Bounded():
            return call(*args, **kwargs)

    return within


def refuse(sizes: tuple[Any, ...]) -> None:
    """Raise RuntimeError where a tensor of bytes would be negative or too large."""
    total = 1
    for size in sizes:
        for each in size if isinstance(size, tuple | list) else (size,):
            total *= int(each)
            if not 0 <= total <= MOST_BYTES:
                message = (
                    f"an object collective was sent a size of {int(each)} bytes, and takes at most "
                    f"{MOST_BYTES}: what arrived is not an object"
                )
                raise RuntimeError(message)


# -------------------------------------------------------------------------------------------------
# A call's evaluated arguments as torch takes them: converted by kind, never by operation.


def convert(world: World, call: Call) -> dict[str, Any]:
    """Return torch's arguments for a call.

    What the author left out and what has no default is left out here too; a name that has no value
    on this rank is passed as None.
    """
    assert call.operation is not None
    converted: dict[str, Any] = {}
    given, stated = call.entry.arguments, call.step.arguments
    for param in call.operation.params:
        name, kind = param.name, param.kind
        value = given.get(name)
        if value is None:
            if kind == "seconds":
                value = _find_timeout(world.dist, call, param)
            if value is None:
                if name in stated:
                    converted[name] = None
                continue
        change = CHANGES.get(kind)
        converted[name] = value if change is None else change(world, value)
    return converted


def _find_timeout(dist: ModuleType, call: Call, param: Param) -> float | None:
    """Return the group's timeout for a call that would fall back on torch's own 30 minutes.

    `monitored_barrier`, `new_group` and the subgroups do not inherit the world's timeout.
    """
    if isinstance(call.operation, GroupCreation):
        return call.entry.group.timeout_s
    function = getattr(dist, call.operation.name, None) if call.operation else None
    if function is None or param.name not in signature(function).parameters:
        return None
    return call.entry.group.timeout_s


def reduce_op(world: World, op: str | PremulSum) -> Any:
    """Return torch's reduce op for a name, or for a sum of scaled contributions."""
    if isinstance(op, PremulSum):
        return world.torch._C._distributed_c10d._make_nccl_premul_sum(op.factor)
    return getattr(world.dist.ReduceOp, op.upper())


def p2p_ops(world: World, operations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items of `batch_isend_irecv` with the handle of each one's group."""
    return [
        {
            **item,
            "group": None if item.get("group") is None else world.handle(item["group"]),
        }
        for item in operations
    ]


CHANGES: dict[str, Callable[[World, Any], Any]] = {
    "group": lambda world, name: world.handle(WORLD if name is None else name),
    "reduce_op": reduce_op,
    "seconds": lambda _, seconds: timedelta(seconds=float(seconds)),
    "p2p_ops": p2p_ops,
}


# -------------------------------------------------------------------------------------------------
# What a step does, made ready: an *act* is done once, or again and again, and names what it wrote.
#
# Everything that can be settled before the step is taken is settled when its act is made: torch's
# arguments, the function, what it stores into. Knows the shapes of operations and none by name.

#: carries a step out; returns the names that it may have stored into by then
Act: TypeAlias = Callable[[], tuple[str, ...]]


@cache
def shape_of(operation: type[Operation]) -> type[Operation]:
    """Return which of the shapes an operation has that are not taken alike."""
    shapes: tuple[type[Operation], ...] = (
        *(Local, Waiting, GroupCreation, Compound),
        *(RemoteCall, Departure),
    )
    return next((shape for shape in shapes if issubclass(operation, shape)), Operation)


class Pending(Struct):
    """Work that was started and may be waited for: what torch returned, what it writes."""

    work: Any
    written: tuple[str, ...]
    timeout_s: float
    waited: bool = False


class RankActions:
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
        #: what was said in the last step of several calls
        self.said: tuple[IssuedCall, ...] | None = None

    def act(self, call: Call, late: Mapping[str, str]) -> Act:
        """Return what a call does. Raises what torch, or the language, refuses before it.

        `late` maps arguments to names: each time the act is done, torch gets the tensor that the
        name holds by then.
        """
        operation: Any = call.operation
        if operation is None:
            return _do_nothing
        shape = shape_of(operation.__class__)
        if shape is Local:
            return self._locally(call, operation)
        if shape is Waiting:
            return self._make_wait(call, operation.handles(call.entry))
        if shape is RemoteCall:
            return self._ask(call, operation)
        if shape is Departure:
            return self._depart
        if shape is GroupCreation:
            return lambda: self._create(call, operation)
        if shape is Compound:
            return lambda: self._find_together(call, operation)
        made = self._bound(call, late)
        if call.asynchronous:
            return self._make_start(call, made)
        if self._world.calls is not None:
            made = self._serve_while(made)
        return _doing(made, call.targets)

    @property
    def service(self) -> Service | None:
        """The rank's part in the RPC world, where its scenario has one."""
        return self._world.calls

    def show_stores(self, call: Call, late: Mapping[str, str]) -> Act:
        """Return what a call does, which also names what functions may have stored meanwhile."""
        act, service = self.act(call, late), self.service
        if service is None:
            return act
        return lambda: tuple(sorted({*act(), *service.find_changed(call)}))

    def stores(self, call: Call) -> tuple[str, ...]:
        """Return what a call, or the work it awaits, may have stored into before it raised."""
        names = call.targets
        if isinstance(call.operation, Waiting):
            names = _list_written(self._find_awaited(call))
        return tuple(name for name in names if name in self._process.held)

    def timeout_s(self, call: Call) -> float:
        """Return how long the backend itself would wait for a call, or for the work it awaits."""
        if isinstance(call.operation, Waiting):
            own = (pending.timeout_s for pending in self._find_awaited(call))
            return max(own, default=self._world.plan.world.timeout_s)
        stated = call.entry.arguments.get("timeout")
        return call.entry.group.timeout_s if stated is None else float(stated)

    def _find_awaited(self, call: Call) -> list[Pending]:
        operation: Any = call.operation
        return self._find_named(operation.handles(call.entry))

    def _find_named(self, handles: tuple[str, ...]) -> list[Pending]:
        return [
            pending
            for name in handles
            for pending in find_work(name, self._pending, lambda pending: pending.waited)
        ]

    # ------------------------------------------------------------------ by shape

    def _bound(self, call: Call, late: Mapping[str, str]) -> Callable[[], Any]:
        """Return torch's call; the arguments `late` are looked up when it is made."""
        operation: Any = call.operation
        given = convert(self._world, call)
        dist, scope = self._world.dist, self._process.scope
        if type(operation).execute is Operation.execute:
            made: Callable[..., Any] = operation.bound(dist, given | dict.fromkeys(late))
        else:
            made = _make_call(operation, dist, given)
        if operation.takes_objects:
            made = bound_memory(self._world.torch, made)
        if not late:
            return made
        if len(late) > 1:
            return lambda: made(**{param: scope[name] for param, name in late.items()})
        ((param, name),) = late.items()
        return _bind_tensor(made, param, scope, name)

    def _locally(self, call: Call, operation: Local) -> Act:
        process, entry, written = self._process, call.entry, call.targets
        duration_s = operation.duration_s(entry)

        def act() -> tuple[str, ...]:
            if duration_s > 0:
                self._world.serve_while(lambda: time.sleep(duration_s))
            if operation.calls_torch:
                operation.execute(self._world.dist, convert(self._world, call))
            operation.run(process, entry)
            return written

        return act

    def _make_start(self, call: Call, made: Callable[[], Any]) -> Act:
        handle, written = call.handle, call.targets
        timeout_s = call.entry.group.timeout_s

        def act() -> tuple[str, ...]:
            work = made()
            if handle is not None:
                self._pending[handle] = Pending(work, written, timeout_s)
                self._process.keep(call)
            return ()  # nothing else holds the work, here or in torch

        return act

    def _make_wait(self, call: Call, handles: tuple[str, ...]) -> Act:
        timeout_s = call.entry.arguments.get("timeout")
        limit = () if timeout_s is None else (float(timeout_s),)

        def act() -> tuple[str, ...]:
            awaited = self._find_named(handles)
            value = None
            for pending in awaited:
                for work in pending.work if isinstance(pending.work, list) else (pending.work,):
                    value = self._world.serve_while(partial(work.wait, *limit))
                pending.waited = True
            written = awaited[0].written if len(awaited) == 1 else _list_written(awaited)
            return (*written, *self._result(call, value))

        return act

    def _ask(self, call: Call, operation: RemoteCall) -> Act:
        """Call a function on another rank, and hold what it returns unless it is waited for."""
        service = self._world.calls
        assert service is not None
        to, name = operation.callee(call.entry)
        given = call.entry.arguments.get("args") or []
        timeout_s = call.entry.arguments.get("timeout")
        start = partial(service.ask, to, name, given, timeout_s, keeps=operation.keeps_there)
        if call.asynchronous:
            return self._make_start(call, start)
        return lambda: self._result(call, service.serve_while(start().wait))

    def _result(self, call: Call, value: Any) -> tuple[str, ...]:
        """Hold what a function returned, where the step names it."""
        names = output_of(call.step.arguments)
        for name in names if value is not None else ():
            self._process.assign(name, value)
        return names

    def _depart(self) -> tuple[str, ...]:
        service = self._world.calls
        assert service is not None
        self._pending.clear()  # torch waits for references that a name keeps
        service.serve_while(service.leave)
        return ()

    def _serve_while(self, made: Callable[[], Any]) -> Callable[[], Any]:
        """Let functions of other ranks run while a call of torch's is under way."""
        return lambda: self._world.serve_while(made)

    def _find_together(self, call: Call, operation: Compound) -> tuple[str, ...]:
        world = self._world
        c10d: Any = world.dist.distributed_c10d
        c10d._unpickler = CheckpointUnpickler if operation.checkpoints else ExactUnpickler
        take = (
            bound_memory(world.torch, operation.take) if operation.checkpoints else operation.take
        )
        said: list[IssuedCall] = []
        try:
            with recorder(world.torch, said, self._process, world.handle):
                take(world.torch, world.mesh, self._process, call.entry)
            # the calls of a process group that is written in Python go past torch's dispatcher
            heard = type(world.handle(WORLD)) is world.dist.ProcessGroup
            self.said = tuple(said) if heard else None
        finally:
            c10d._unpickler = PlainUnpickler
        return call.targets

    def _create(self, call: Call, operation: GroupCreation) -> tuple[str, ...]:
        world = self._world
        group = operation.group(call.entry, world.plan.scenario.timeout_s)
        group = replace(group, key=f"{group.name}#{self._creations}")
        self._creations += 1
        given = convert(world, call)
        world.adopt(group, world.serve_while(lambda: operation.execute(world.dist, given)))
        self._process.join(group)
        return ()


def _do_nothing() -> tuple[str, ...]:
    """Be a step that is an `expect` alone."""
    return ()


def _make_call(operation: Operation, dist: ModuleType, given: dict[str, Any]) -> Callable[..., Any]:
    """Return the call of an operation that calls torch in its own way."""
    return lambda **anew: operation.execute(dist, given | anew)


def _bind_tensor(
    made: Callable[..., Any], param: str, scope: Mapping[str, Any], name: str
) -> Callable[[], Any]:
    """Return a call with the tensor that `name` holds when it is made.

    While that is the same small tensor, the call has all its arguments already.
    """
    last: Any = None
    again: Callable[[], Any] = made

    def call() -> Any:
        nonlocal last, again
        tensor = scope[name]
        if tensor is not last:
            if is_large(tensor):
                return made(**{param: tensor})  # kept, it would outlive the program's own use of it
            last, again = tensor, partial(made, **{param: tensor})
        return again()

    return call


def _doing(made: Callable[[], Any], written: tuple[str, ...]) -> Act:
    def act() -> tuple[str, ...]:
        made()
        return written

    return act


def _list_written(awaited: list[Pending]) -> tuple[str, ...]:
    return tuple(sorted({name for pending in awaited for name in pending.written}))


# -------------------------------------------------------------------------------------------------
# Steps as one rank takes them: evaluated when first taken, and kept where the call stays the same.
#
# A step in a loop is most often the same call each round. So its first round leaves behind a
# closure with everything settled, and later rounds only make sure that what it was made of is
# still there.

#: takes the step of an index at an iteration; returns whether the rank goes on
Taking: TypeAlias = Callable[[int, tuple[int, ...]], bool]
#: the same, or None where the step would be another call now
Again: TypeAlias = Callable[[int, tuple[int, ...]], bool | None]


#: rounds in which a step is kept that counts with its loop, over all steps
ROUNDS = 1000


class StepRunner:
    """Takes the steps of a program on one rank, and puts what happens on its board."""

    def __init__(
        self,
        process: Process,
        board: Board,
        *,
        acts: RankActions,
        copies: Copies,
        completion: Completion,
        failures: Failures,
    ) -> None:
        """Have taken nothing yet."""
        self._process = process
        self._board = board
        self._acts = acts
        self._copies = copies
        self._completion = completion
        self._failures = failures
        self._sameness = KnownCalls(process.plan)
        #: step index -> how to take it again
        self.kept: dict[int, Again] = {}
        #: what a step has in common with others written alike -> how to take those
        self._alike: dict[Hashable, Again | None] = {}

    def take(self, step: Step, iteration: tuple[int, ...]) -> bool:
        """Evaluate a step and take it; False where it raised what it does not expect.

        In a loop most rounds are alike: what takes the step, with its arguments evaluated and its
        call bound, is kept under a key of all that it was made of, and the next round with the same
        key only calls it.

        Raises ScenarioError where it cannot be evaluated, ProcessExit where a `fault` ends the
        process, BrokenCallError where the supervisor broke the call.
        """
        same = self._sameness.of(step) if iteration else UNKNOWN
        alike = self._make_round_key(step, same.counting) if iteration else key(step)
        known = self._alike.get(alike)
        goes_on = None if known is None else known(step.index, iteration)
        if goes_on is not None:
            return goes_on
        call = self._process.call(step, iteration)
        if alike in self._alike:
            same = self._sameness.of(step)
        names = same.names
        if call is None:
            names = same.selection if _always_concerns(step) else None
        late = {} if call is None or names is None else self._find_late_arguments(same)
        taking: Taking = _pass if call is None else self._make_taking(call, late)
        again = None if names is None else self._make_repeat(names, late, taking)
        if alike is not None:
            self._alike[alike] = again
        elif again is not None and not same.counting:
            self.kept[step.index] = again
        return taking(step.index, iteration)

    def _make_round_key(self, step: Step, counting: tuple[Expression, ...]) -> Hashable:
        """Return what tells a round from another for a step that counts; None for any other step.

        None as well where that cannot be told, or where too many rounds were told apart.
        """
        if not counting or len(self._alike) >= ROUNDS:
            return None
        try:
            values = [self._process.evaluate(form) for form in counting]
        except ScenarioError:
            return None  # perhaps this rank does not take the step
        if any(isinstance(value, list) for value in values):
            return None
        return (step.index, *((value.__class__, value) for value in values))

    def _find_late_arguments(self, same: KnownCall) -> dict[str, str]:
        """Return the arguments that are looked up by name each time: they hold a tensor now."""
        scope, is_array = self._process.scope, self._process.arrays.is_array
        return {param: name for param, name in same.tensors.items() if is_array(scope.get(name))}

    def _make_repeat(
        self, names: frozenset[str], late: Mapping[str, str], taking: Taking
    ) -> Again | None:
        """Return what takes a step for as long as the names hold what they hold now.

        A name in `late` may come to hold another tensor. None where what the others hold is large:
        it would live on after the program let go of it.
        """
        process = self._process
        scope, regrouped = process.scope, process.regrouped
        tensors = [(name, scope[name].__class__) for name in sorted(set(late.values()))]
        watched = [(name, scope.get(name)) for name in sorted(names - set(late.values()))]
        if any(is_large(value) for _, value in watched):
            return None

        def again(index: int, iteration: tuple[int, ...]) -> bool | None:
            if process.regrouped != regrouped:
                return None
            for name, value in watched:
                if scope.get(name) is not value:
                    return None
            for name, kind in tensors:
                if scope[name].__class__ is not kind:
                    return None
            return taking(index, iteration)

        return again

    def _make_taking(self, call: Call, late: Mapping[str, str]) -> Taking:
        """Return what takes the step of a call, once or again.

        Everything that is the same each time is looked up here, and bound to local names: what is
        between two calls of a rank adds to the time that is measured of them.
        """
        step, operation = call.step, call.operation
        communicates = operation is not None and not isinstance(operation, Local)
        site = Site(call.label, communicates)
        board, acts, now_s = self._board, self._acts, time.monotonic
        note, usual = board.records.append, call.targets
        copies, named = self._copies.make_copier(usual), self._copies.copy_named
        keeps = self._process.plan.scenario.keeps
        looks = step.expect is not None and bool(step.expect.values)
        mark = self._completion.mark if self._completion.enqueues else None
        awaits = isinstance(operation, Waiting)
        timeout_s = self._acts.timeout_s(call) if mark and communicates and not awaits else None
        act: Act | None = None

        def take(index: int, iteration: tuple[int, ...]) -> bool:
            nonlocal act
            record = TakenStep()
            record.site = site
            record.index = index
            record.iteration = iteration
            record.start_s = now_s()
            note(record)
            if communicates:
                # The board is what the supervisor reads of a rank that answers no more: it says in
                # which call it is.
                board.inside = record
            goes_on = True
            try:
                if act is None:
                    act = acts.show_stores(call, late)
                written = act()
            except ProcessExit:
                raise
            except Exception as error:  # noqa: BLE001 -- whatever torch raises is what is observed
                goes_on, written = self._note_failure(record, call, error)
            end_s = now_s()
            if written and keeps:
                record.kept = copies() if written is usual else named(written)
                record.written = written
            record.end_s = end_s
            if acts.said is not None:
                record.said, acts.said = acts.said, None
            board.inside = None
            if mark is not None:
                record.timeout_s = acts.timeout_s(call) if awaits else timeout_s
                # behind the copies: they may be read once it has happened
                record.event = mark()
                board.spare(record)
            if looks:
                self._observe(record, step)
            return goes_on

        return take

    def _note_failure(
        self, record: TakenStep, call: Call, error: Exception
    ) -> tuple[bool, tuple[str, ...]]:
        """Note what a step raised; returns whether it expects that, and what it stored into."""
        failure = self._failures.note(record, error)
        self.kept.clear()
        self._alike.clear()
        return failure.kinds[0] in self._find_expected(call), self._acts.stores(call)

    def _find_expected(self, call: Call) -> tuple[str, ...]:
        """Return the kinds that the step's own `raises` allows on this rank."""
        raises: Any = call.step.expect.raises if call.step.expect else None
        if isinstance(raises, PerRank):
            raises = self._process.choose(raises)
        return raises.kinds if isinstance(raises, RaiseSpec) else ()

    def _observe(self, record: TakenStep, step: Step) -> None:
        """Note what the step's expectation looks at that is more than a name."""
        try:
            seen = self._process.observe(step)
            record.observed = {text: self._copies.of(value) for text, value in seen.items()}
        except ScenarioError as error:
            record.observed = {"": str(error)}
        if record.observed and self._completion.enqueues:
            self._board.defer(record, self._completion.mark())


def _always_concerns(step: Step) -> bool:
    """Return whether a rank that skips a step does so because of its group or `ranks:` alone."""
    operation = step.operation
    return operation is None or type(operation).concerns is Operation.concerns


def _pass(_index: int, _iteration: tuple[int, ...]) -> bool:
    """Take nothing: another rank's step."""
    return True


# -------------------------------------------------------------------------------------------------
# After the last step: the device is asked, never waited for, until it has done each of them.

#: seconds beyond a call's own timeout that a device gets; torch's watchdog looks ten times a second
GRACE_S = 0.5
#: seconds between two looks at what is not on the device: the supervisor's word, the backend's
ASK_S = 0.01


def drain(board: Board, world: World, failures: Failures) -> str | None:
    """Wait, after the last step, until the device has done each of them, in order.

    Returns `raised` where the device did not come to the end: an error of the backend's that no
    call could raise, its own timeout, a lost context. Raises BrokenCallError as a stuck call does.
    """
    while (record := board.advance()) is not None:
        end = _wait_for_device(record, board, world, failures)
        if end == "happened":
            continue
        if end == "left" and failures.broken():
            raise BrokenCallError
        board.fail(record, explain_loss(record, board, world))
        failures.lost = True
        return "raised"
    return None


def _wait_for_device(
    record: TakenStep, board: Board, world: World, failures: Failures
) -> device.End:
    """Wait until the device is past a step, for as long as the backend itself would."""
    if board.fault is not None:
        return "left"
    return device.wait(
        lambda: board.advance() is not record,
        deadline_s=time.monotonic() + _find_limit_s(record, world) + GRACE_S,
        leave=device.seldom(lambda: failures.broken() or _fault(board, world) is not None, ASK_S),
    )


def _fault(board: Board, world: World) -> Exception | None:
    """Return what went wrong on the device, as far as anything there says so."""
    return board.fault or world.error()


def explain_loss(record: TakenStep, board: Board, world: World) -> Failure:
    """Return why the device is not done with a step."""
    fault = _fault(board, world)
    if fault is not None:
        return failure_of(fault)
    allowed_s = _find_limit_s(record, world)
    return Failure(
        kinds=("timeout",),
        message=f"the device had not done it after the {allowed_s:g} s that the group allows",
    )


def _find_limit_s(record: TakenStep, world: World) -> float:
    return record.timeout_s or world.plan.world.timeout_s


# -------------------------------------------------------------------------------------------------
# One rank's program, taken step by step on torch; everything that happens goes on the board.
#
# It knows the shapes of operations and no operation by name, and it knows nothing of other ranks.


class ModelRefusedError(Exception):
    """Torch raised while a model was made; the account is given already."""


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
        self._plan = plan
        self._world = world
        self._arrays = arrays
        self._board = board
        self._completion = completion
        self._failures = Failures(broken, world.mend, lambda: type(world.handle(WORLD)))
        #: the work that a name keeps
        self.pending: dict[str, Pending] = {}
        self._ready: tuple[Process, Copies, dict[str, Any]] | None = None

    @property
    def lost(self) -> bool:
        """Whether a call failed in a way that closed connections: the peers cannot go on either."""
        return self._failures.lost

    def prepare(self) -> str | None:
        """Create the groups and make what the rank holds before step 1.

        Returns how the rank ended, where it did. Raises BrokenCallError where the supervisor broke
        a call.
        """
        for module in self._plan.modules:
            import_module(module)
        for creation in self._plan.creations:
            if not self._create(creation):
                return "raised"
        try:
            process = self._process()
        except ScenarioError as error:
            self._note_unevaluated(error)
            return "raised"
        except ModelRefusedError:
            return "raised"
        convert = None if self._completion.enqueues else self._board.convert
        copies = Copies(self._world.torch, process.scope, convert)
        names = tuple(sorted(process.held))
        initial = dict(zip(names, copies.copy_named(names), strict=True))
        self._completion.begin()  # once here, so that the device has it before any rank goes on
        self._ready = process, copies, initial
        return None

    @property
    def unconnected(self) -> bool:
        """Whether the rank ended because the connections of a group could not be made."""
        last = self._board.records[-1] if self._board.records else None
        failure = last.failure if last is not None and last.index < 0 else None
        return failure is not None and failure.kinds[0] in UNCONNECTED

    def run(self) -> str:
        """Take every step, once prepared; returns how the rank ended.

        Raises ProcessExit where a `fault` ends the process, BrokenCallError where the supervisor
        broke a call.
        """
        assert self._ready is not None
        process, copies, initial = self._ready
        self._completion.begin()
        self._board.begin(initial)
        ending = self._serve_and_take(process, copies)
        ending = drain(self._board, self._world, self._failures) or ending
        if ending == "finished" and self._plan.scenario.keeps:
            self._board.strays = copies.find_strays(self._board)
        return ending

    def _serve_and_take(self, process: Process, copies: Copies) -> str:
        """Take every step, while others may call functions here; returns how the rank ended."""
        service = self._world.calls
        if service is None:
            return self._take_all(process, copies)
        service.broken = self._failures.broken
        ending = ""
        with service.turn:
            service.serve(process)
            try:
                ending = self._take_all(process, copies)
            finally:
                if ending != "finished":
                    service.arrive(early=True)
        return ending

    def _create(self, creation: Creation) -> bool:
        """Create the groups of one entry of `groups:`; False where torch refuses."""
        site = Site(f"{creation.kind} {creation.spec.name}", communicates=True)
        record = self._board.enter(site, -1)
        try:
            self._world.create(creation)
        except Exception as error:  # noqa: BLE001 -- whatever torch raises is what is observed
            self._failures.note(record, error)
            return False
        finally:
            self._board.leave(record)
        self._board.forget(record)
        return True

    def _process(self) -> Process:
        """Evaluate what the rank holds before step 1, where the groups are known already."""
        world = self._world
        asked: dict[str, Callable[..., Any]] = {
            "group_rank()": world.group_rank,
            "group_size()": world.group_size,
            "group_ranks()": world.group_ranks,
            "node_rank()": lambda: int(os.environ.get("GROUP_RANK", "0")),
            "local_rank()": lambda: int(os.environ.get("LOCAL_RANK", str(world.rank))),
        }
        return Process(self._plan, world.rank, self._arrays, asked, made=self._make_model)

    def _make_model(self, model: Model, process: Process) -> TorchModel:
        """Return this rank's part of a model, on torch."""
        world = self._world
        site = Site(f"model {model.name}", communicates=True)
        record = self._board.enter(site, -1)
        try:
            on = world.device if world.device.type != "cpu" else None
            made = TorchModel(
                model, world.torch, process, world.handle, world.mesh, world.folder, on
            )
        except ScenarioError:
            raise
        except Exception as error:
            self._failures.note(record, error)
            raise ModelRefusedError from error
        finally:
            self._board.leave(record)
        self._board.forget(record)
        return made

    def _note_unevaluated(self, error: ScenarioError) -> None:
        """Note that the next step's arguments cannot be computed from what the rank holds."""
        last = self._board.records[-1].position if self._board.records else (-1, ())
        record = self._board.enter(Site("what comes next", communicates=False), *last)
        self._failures.note(record, error)
        self._board.leave(record)

    # ------------------------------------------------------------------ its steps

    def _take_all(self, process: Process, copies: Copies) -> str:
        """Take every step, as far as the rank gets; returns how it ended."""
        stepping = StepRunner(
            process,
            self._board,
            acts=RankActions(self._world, process, self.pending),
            copies=copies,
            completion=self._completion,
            failures=self._failures,
        )
        try:
            finished = _walk(stepping, process, self._plan.scenario.steps, ())
        except ScenarioError as error:
            self._note_unevaluated(error)
            return "raised"
        self._board.numbers = process.read_numbers()
        if finished:
            self.pending.clear()  # the names of a script end with it
        return "finished" if finished else "raised"


def _walk(
    stepping: StepRunner, process: Process, steps: tuple[Step, ...], iteration: tuple[int, ...]
) -> bool:
    """Take steps in order, and those of a loop once a round; False where the rank ends early."""
    kept = stepping.kept
    for step in steps:
        again = kept.get(step.index)
        goes_on = None if again is None else again(step.index, iteration)
        if goes_on is None and step.variable is None:
            goes_on = stepping.take(step, iteration)
        elif goes_on is None:
            goes_on = _repeat(stepping, process, step, iteration)
        if not goes_on:
            return False
    return True


def _repeat(stepping: StepRunner, process: Process, step: Step, iteration: tuple[int, ...]) -> bool:
    """Take the steps of a loop, once for each value of its variable."""
    assert step.variable is not None
    for value in process.rounds(step):
        process.turn(step, value)
        if not _walk(stepping, process, step.body, (*iteration, value)):
            return False
    process.forget(step)
    return True
