"""torch's RPC world of one scenario on one rank: nothing but functions of the file runs in it.

torch pickles what its RPC carries, and unpickles what arrives, no matter which rank sent it. Before
the world is made, its pickler is replaced by one that knows a table of functions, plain values and
tensors: the bytes of a stranger become no object.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from torch_scenarios.errors import ScenarioError, UnsupportedError
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.procedure import Procedures
from torch_scenarios.model.process import Call, Process
from torch_scenarios.model.scenario import Function, steps_of
from torch_scenarios.operations.base import Departure, RefusedError, RemoteCall

T = TypeVar("T")

#: where torch's RPC keeps its pickler, by module
PICKLERS = {
    "torch.distributed.rpc.internal": "_internal_rpc_pickler",
    "torch.distributed.rpc.api": "_default_pickler",
}
#: functions of torch's own that its RPC world calls as it begins and ends
OF_TORCH = ("_gather_to_leader", "_broadcast_to_followers")
#: threads that run functions; those that sleep take one each
THREADS = 16
#: seconds between two looks at whether the other ranks have come to their end
LOOK_S = 0.005
#: what a rank counts for that did not come to its last step; more than ranks can be
ENDED_EARLY = 1 << 32
#: bytes of what one message of a call may hold beside its tensors
MOST_BYTES = 1 << 20


class FunctionFailedError(RuntimeError):
    """A function raised on the rank that was called.

    It carries the text of what was raised, and no class: a class of the callee need not exist here.
    """


# What crosses between ranks: a function's name and its arguments, or what it returned.


class Codec:
    """In the place of torch's pickler: MessagePack, with tensors by their place in a list.

        rpc_sync("worker1", push, args=(g, 2))     ["call", "push", [{tensor: 0}, 2], {}], [g]

    Only names of the file's own functions are in the table. What torch's own pickler would read is
    a program, and any rank of the world could send one (decision 31).
    """

    def __init__(self, rpc: ModuleType, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Know these functions, by name."""
        self._internal: Any = import_module("torch.distributed.rpc.internal")
        self._rpc: Any = rpc
        self._functions = dict(functions)
        self._names = {function: name for name, function in self._functions.items()}
        self._tensor: Any = import_module("torch").Tensor

    def serialize(self, value: Any) -> tuple[bytes, list[Any]]:
        """Return a message and its tensors. Raises TypeError for what no message has."""
        tensors: list[Any] = []
        if isinstance(value, self._internal.PythonUDF):
            given = [self._pack(each, tensors) for each in (list(value.args), value.kwargs)]
            return msgspec.msgpack.encode(["call", self._names[value.func], *given]), tensors
        if isinstance(value, self._internal.RemoteException):
            return msgspec.msgpack.encode(["raised", str(value.msg)]), tensors
        return msgspec.msgpack.encode(["value", self._pack(value, tensors)]), tensors

    def deserialize(self, message: bytes, tensors: Sequence[Any]) -> Any:
        """Return what a message says; one that is not of this run is an error of the call."""
        internal = self._internal
        try:
            return self._open(message, tensors)
        except (msgspec.MsgspecError, KeyError, IndexError, ValueError, TypeError) as error:
            words = f"a message that no rank of this run sends: {error}"
            return internal.RemoteException(words, FunctionFailedError)

    def _register_reducer(self, of: type, reducer: Callable[..., Any]) -> None:
        """Take how torch would pickle a class, as its modules say where they are imported.

        No message of a scenario has such an object, and so nothing is kept.
        """

    def _open(self, message: bytes, tensors: Sequence[Any]) -> Any:
        if len(message) > MOST_BYTES:
            words = f"it has {len(message)} bytes"
            raise ValueError(words)
        kind, *parts = msgspec.msgpack.decode(message, type=list[Any])
        if kind == "call":
            name, args, kwargs = parts
            given, named = self._unpack(args, tensors), self._unpack(kwargs, tensors)
            return self._internal.PythonUDF(self._functions[name], tuple(given), dict(named))
        (part,) = parts
        if kind == "raised":
            return self._internal.RemoteException(str(part), FunctionFailedError)
        if kind != "value":
            words = f"it is {kind!r}"
            raise ValueError(words)
        return self._unpack(part, tensors)

    def _pack(self, value: Any, tensors: list[Any]) -> Any:
        """Return a value as plain data; tensors go into the list."""
        if isinstance(value, self._tensor):
            tensors.append(value)
            return {"tensor": len(tensors) - 1}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, list | tuple):
            return [self._pack(each, tensors) for each in value]
        if isinstance(value, set | frozenset):
            return {"set": sorted(str(each) for each in value)}
        if isinstance(value, dict):
            return {"dict": {str(key): self._pack(each, tensors) for key, each in value.items()}}
        message = f"a call cannot carry {type(value).__name__}"
        raise TypeError(message)

    def _unpack(self, value: Any, tensors: Sequence[Any]) -> Any:
        if isinstance(value, list):
            return [self._unpack(each, tensors) for each in value]
        if isinstance(value, dict):
            ((kind, inner),) = value.items()
            if kind == "tensor":
                return tensors[inner]
            if kind == "set":
                return {str(each) for each in inner}
            return {str(key): self._unpack(each, tensors) for key, each in inner.items()}
        return value


# One rank's part: it calls, it serves, and it leaves once all have come to their end.


class Future(Struct, frozen=True):
    """A call of a function under way: what torch returned for it, and how its value is fetched.

    `rpc_async` returns a future with `wait`, `remote` a reference with `to_here`: both are one
    here.
    """

    wait: Callable[..., Any]


def calls_functions(plan: Plan) -> bool:
    """Whether some step calls a function on another rank."""
    return any(isinstance(step.operation, RemoteCall) for step in steps_of(plan.scenario.steps))


class Service:
    """The RPC world of a scenario on one rank.

    A function runs on a thread of torch's, next to the rank's program. Both evaluate expressions in
    one scope, so that the one that does holds `turn`: a function and a step never interleave, as
    the semantics state of a function.
    """

    def __init__(self, torch: ModuleType, plan: Plan, rank: int, store: Any) -> None:
        """Join no world yet; `store` is that of the scenario's groups."""
        self._torch: Any = torch
        self._plan = plan
        self._rank = rank
        self._store = store
        self._rpc: Any = import_module("torch.distributed.rpc")
        #: held by who evaluates: the rank's own program, or a function that runs
        self.turn = threading.RLock()
        self._process: Process | None = None
        self._ready = threading.Event()
        self._calls: dict[int, int] = {}
        self._served = 0
        self._joined = False
        #: whether the supervisor broke the scenario
        self.broken: Callable[[], bool] = bool
        self.procedures = Procedures(plan.scenario)

    def start(self) -> None:
        """Join the RPC world. Raises UnsupportedError where torch's pickler stays in the way."""
        rpc, plan = self._rpc, self._plan
        api = import_module("torch.distributed.rpc.api")
        self._replace_picklers(api)
        os.environ["TP_SOCKET_IFNAME"] = "lo"
        api._all_gather_sequence_id.clear()
        api._all_gather_sequence_id_to_states.clear()
        import_module("torch.distributed.autograd")._init(self._rank)
        options = rpc.TensorPipeRpcBackendOptions(
            num_worker_threads=THREADS,
            rpc_timeout=plan.scenario.timeout_s,
            _transports=["uv"],
            _channels=["basic"],
        )
        rpc._init_rpc_backend(
            rpc.BackendType.TENSORPIPE,
            self._torch.distributed.PrefixStore("rpc", self._store),
            f"rank{self._rank}",
            self._rank,
            plan.world_size,
            options,
        )
        self._joined = True

    def _replace_picklers(self, api: ModuleType) -> None:
        functions = {name: getattr(api, name, None) for name in OF_TORCH}
        places = {import_module(module): name for module, name in PICKLERS.items()}
        lacks = [name for name, function in functions.items() if function is None]
        lacks += [name for module, name in places.items() if not hasattr(module, name)]
        if lacks or not hasattr(self._rpc, "_init_rpc_backend"):
            message = (
                f"the pickler of this torch's RPC cannot be replaced ({', '.join(lacks)} is not "
                "there), and bytes of a stranger could become objects"
            )
            raise UnsupportedError(message)
        known = {name: function for name, function in functions.items() if function is not None}
        codec = Codec(self._rpc, {**known, "perform": perform})
        for module, name in places.items():
            setattr(module, name, codec)
        CurrentService.by = self

    def serve(self, process: Process) -> None:
        """Let functions run, on what the rank holds."""
        self._process = process
        self._ready.set()

    def ask(
        self, to: int, function: str, given: Sequence[Any], timeout_s: float | None, *, keeps: bool
    ) -> Future:
        """Call a function on a rank; returns at once. Raises what torch raises."""
        self._calls[to] = self._calls.get(to, 0) + 1
        more = {} if timeout_s is None else {"timeout": timeout_s}
        args = (function, *given)
        if keeps:
            rref = self._rpc.remote(to, perform, args=args, **more)
            return Future(rref.to_here)
        future = self._rpc.rpc_async(to, perform, args=args, **more)
        return Future(lambda *_: future.wait())

    def perform(self, name: str, given: Sequence[Any]) -> Any:
        """Run a function of the file, in a thread of torch's; returns what it returns."""
        function: Function = self._plan.scenario.functions[name]
        try:
            self._ready.wait()
            time.sleep(function.takes_s)
            process = self._process
            assert process is not None
            with self.turn:
                try:
                    return process.perform(function, list(given))
                finally:
                    process.undefined_reads.clear()
                    self._served += 1
        except (RefusedError, ScenarioError) as error:
            # returned, because torch prints the traceback of what a function raises
            internal: Any = import_module("torch.distributed.rpc.internal")
            return internal.RemoteException(str(error), FunctionFailedError)

    def arrive(self, *, early: bool) -> None:
        """Say that this rank has come to its end, and how often it called each other rank."""
        for to, count in self._calls.items():
            self._store.add(f"calls/{to}", count)
        self._calls.clear()
        self._store.add("ended", ENDED_EARLY if early else 1)

    def serve_while(self, call: Callable[[], T]) -> T:
        """Let functions run while the rank's own program waits for others, or sleeps."""
        self.turn.release()
        try:
            return call()
        finally:
            self.turn.acquire()

    def find_changed(self, call: Call) -> frozenset[str]:
        """Return the names that functions may have changed by the end of a step."""
        assert self._process is not None
        procedures, held = self.procedures, self._process.held
        if isinstance(call.operation, Departure):
            return procedures.find_stored(self._rank) & held
        return procedures.find_changed(self._rank, call.step) & held

    def leave(self) -> None:
        """Serve until every rank has come to its end, and leave the RPC world with them.

        Raises RuntimeError where the supervisor breaks the wait.
        """
        self.arrive(early=False)
        self._wait(lambda: self._count_ended() >= self._plan.world_size)
        self._wait(lambda: self._served >= self._store.add(f"calls/{self._rank}", 0))
        self._store.add("left", 1)
        self._wait(lambda: self._store.add("left", 0) + self._find_early() >= self._plan.world_size)
        self.drop()

    def _count_ended(self) -> int:
        """Return how many ranks have come to an end."""
        return sum(divmod(self._store.add("ended", 0), ENDED_EARLY))

    def _find_early(self) -> int:
        return int(self._store.add("ended", 0)) // ENDED_EARLY

    def _wait(self, done: Callable[[], bool]) -> None:
        while not done():
            if self.broken():
                message = "the other ranks do not end"
                raise RuntimeError(message)
            time.sleep(LOOK_S)

    def drop(self) -> None:
        """Leave, if that is still to be done.

        torch's own graceful end counts the ends that a process has seen and meets the others under
        that number: ranks of which one has taken part in fewer worlds wait for ever
        (`getNextKeyIds` of tensorpipe_agent.cpp). So the ranks wait for each other before it.
        """
        if self._joined:
            self._joined = False
            self._rpc.shutdown(graceful=False)


class CurrentService:
    """Which service of this process runs what is asked of it.

    torch calls a plain function by its name, which knows no scenario; so the process has one
    service.
    """

    by: Service | None = None


def perform(name: str, *given: Any) -> Any:
    """Run a function of the file on this rank: what torch's RPC calls by its name."""
    service = CurrentService.by
    if service is None:
        message = "this rank serves no scenario"
        raise FunctionFailedError(message)
    return service.perform(name, given)
