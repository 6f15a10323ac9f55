"""The process groups of one scenario on one rank: made, named, broken, dropped."""

from __future__ import annotations

import ctypes
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from torch_scenarios.errors import LaunchError, UnsupportedError
from torch_scenarios.execution import backends, flight_recorder
from torch_scenarios.execution.backends import kind_of
from torch_scenarios.execution.protocol import BEGUN, Store, await_key
from torch_scenarios.model.plan import Creation, Plan
from torch_scenarios.operations.base import Group
from torch_scenarios.vocabulary import WORLD
from torch_scenarios.worker import device
from torch_scenarios.worker.calls import Service, calls_functions

T = TypeVar("T")

# -------------------------------------------------------------------------------------------------
# What a call that torch refused leaves open in NCCL, and how it is closed.
#
# torch opens a group of NCCL's for a message, a scatter, an exchange or a batch, and asks for the
# dtype inside of it. A refusal leaves the group open, and whatever the thread calls after that is
# noted in it and never launched: an all_reduce returns at once and changes nothing (seen with
# torch 2.11; ProcessGroupNCCL.cpp, `pointToPoint` and `startCoalescing`). It would stay so in
# every later world of the process.
#
# The end of a group launches what was noted in it. Of a batch whose second message is refused, the
# first would be sent, and the thread that handles the exception would wait for a peer that never
# comes. So the group ends with an error: a call without a communicator is refused and makes the
# group one that failed, whose calls NCCL drops (2.21.5 to 2.30.7: `ncclEnqueueCheck` in
# src/enqueue.cc, `ncclGroupEndInternal` and `groupCleanup` in src/group.cc). torch must not see
# that error, as it counts a group only where the end of it succeeds: a group of ours is opened
# around its own, so that its own is an inner one, whose end launches nothing.
#
#     ncclGroupStart   torch, for the batch
#     ncclSend         noted
#     (refused)        torch raises; its group stays open
#     ncclGroupStart   here
#     ncclGroupEnd     torch, `_end_coalescing`: an inner group ends
#     ncclBroadcast    here: refused, the group has failed
#     ncclGroupEnd     here, until none is open: nothing is launched

#: groups that a thread may have open; more is no count but a library that always says yes
MOST = 64


def close_groups(torch: ModuleType, device: Any) -> None:
    """Close every group that is open on this thread, and launch nothing of what was called in it.

    Nothing is done where tensors live on the CPU.
    """
    if device.type == "cpu":
        return
    try:
        nccl = backends.library()
    except OSError:
        nccl = None  # a backend of one's own
    if nccl is not None:
        nccl.ncclGroupStart()
    state = torch.distributed.distributed_c10d._world.pg_coalesce_state
    for group in tuple(state):
        # torch forgets it in the same place where a batch would have ended
        state.pop(group)
        with suppress(RuntimeError):
            group._end_coalescing(device)
    if nccl is None:
        return
    null = ctypes.c_void_p()
    nccl.ncclBroadcast(null, null, ctypes.c_size_t(0), 0, 0, null, null)
    for _ in range(MOST):
        if nccl.ncclGroupEnd() != 0:  # the outermost group failed, or none is open
            return


# -------------------------------------------------------------------------------------------------
# The start of a scenario: where its ranks meet before step 1, or make their world once more.
#
# A rank whose first step ends its process must not do so while a peer still connects to it. So
# every rank says that its groups stand and that it holds what it holds, and the last one lets all
# go on:
#
#     rank 0   world, groups, values | waits . . . | step 1
#     rank 1   world, groups . . . . . . . values  | step 1
#
# Where connections failed on some rank, all of them make a fresh world, under a fresh prefix of
# the store: a connection that a machine lost is no property of the program.

#: how often the ranks of a scenario make their world before one says that it cannot
ATTEMPTS = 3
#: what a rank counts for whose connections failed; more than ranks can be
FAILED = 1 << 32
#: kinds of failure that a connection shows which was not made
UNCONNECTED = frozenset({"timeout", "peer_lost", "aborted"})
GO, AGAIN = b"go", b"again"


class Start:
    """The meeting of the ranks of one scenario, in one attempt at its world."""

    def __init__(self, store: Store, name: str, attempt: int, world_size: int) -> None:
        """Meet in `store`, under the scenario's name."""
        self._store = store
        self._name = name
        self._key = f"{name}/start/{attempt}"
        self._world_size = world_size

    def arrive(self, *, failed: bool = False) -> None:
        """Say that this rank is ready, or that its connections failed; waits for no rank."""
        arrived = self._store.add(f"{self._key}/ready", 1 + (FAILED if failed else 0))
        if arrived % FAILED < self._world_size:
            return
        if arrived < FAILED:
            self._store.set(f"{self._name}/{BEGUN}", b"1")
        self._store.set(f"{self._key}/go", GO if arrived < FAILED else AGAIN)

    def meet(self, *, failed: bool = False) -> bool:
        """Arrive, and wait for every rank; False where all are to make their world once more."""
        self.arrive(failed=failed)
        return await_key(self._store, f"{self._key}/go") == GO


def is_unconnected(error: BaseException) -> bool:
    """Return whether an error says that a connection could not be made."""
    return kind_of(error) in UNCONNECTED


# -------------------------------------------------------------------------------------------------
# One scenario's process groups on one rank: made, named, broken, dropped.
#
# Making a world costs milliseconds, destroying one 10 ms a rank (each connection waits for a tick
# of Gloo's loop). So an old world is kept by reference and dropped by a background thread, while
# the next scenario runs in a fresh one, under another prefix of the store.

#: the folder of this package's sources
PACKAGE = Path(__file__).parents[1]
#: a tag that no scenario uses: the largest that Gloo takes
POISON_TAG = 2**31 - 1
#: seconds that the communicators of a world get to be aborted
ABORT_S = 30.0
#: seconds that a fresh world gets to reduce one number
PROOF_S = 10.0
#: what a backend's error means, in words of which torch_scenarios.execution.backends knows the kind
ERRORS = {
    "TIMEOUT": "Watchdog caught collective operation timeout",
    # so NCCL tells of a peer that is gone, and of hardly anything else while a program runs
    "COMM_ERROR": "ncclRemoteError, or another asynchronous error of the communicator",
    "REMOTE_ERROR": "ncclRemoteError: a peer's process group reported an error",
}


def require_callable(device: Any, ranks: int) -> None:
    """Raise UnsupportedError where ranks cannot call functions of each other: torch's RPC here."""
    if device.type != "cpu":
        message = "functions are called on tensors of the CPU alone: run it on gloo"
        raise UnsupportedError(message)
    here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
    if here < ranks:
        message = (
            f"functions are called on one machine alone, and {here} of its {ranks} ranks are on "
            "this one"
        )
        raise UnsupportedError(message)


def find_place() -> str | None:
    """Return where the main thread is: the innermost line of Python that is not this package's.

    None where it is in a line of this package: its step says more. A step such as `train` is many
    calls, and which of them a rank waits in is seen here alone.
    """
    ident = threading.main_thread().ident
    frame = sys._current_frames().get(ident) if ident is not None else None
    if frame is None:
        return None
    path = Path(frame.f_code.co_filename)
    if PACKAGE in path.parents:
        return None
    return f"{'/'.join(path.parts[-4:])}:{frame.f_lineno}, in {frame.f_code.co_name}"


class World:
    """The process groups of one scenario, by the names that an author uses."""

    def __init__(self, torch: ModuleType, plan: Plan, rank: int, device: Any) -> None:
        """Know nothing yet; :meth:`start` and :meth:`create` make the groups."""
        self.torch = torch
        self.dist: Any = torch.distributed
        self.plan = plan
        self.rank = rank
        self.device = device
        #: where checkpoints lie, a folder of this run's own; None where the scenario has none
        self.folder: str | None = None
        self._handles: dict[str, Any] = {}
        self._made: list[Any] = []
        #: device meshes, by the names that an author uses
        self._meshes: dict[str, Any] = {}
        self._aborted = False
        #: this rank's part in the RPC world, where functions are called
        self.calls: Service | None = None
        #: a call failed in NCCL itself, and what that leaves in torch cannot be told
        self.spoilt = False
        #: seconds that it took to make the world's own group
        self.made_s = 0.0
        #: whether its calls return before they are done
        self.on_device = False

    # ------------------------------------------------------------------ making

    def start(self, store: Any, backend: str) -> None:
        """Make the world's own group. Raises what torch raises."""
        dist = self.dist
        dist.set_debug_level(getattr(dist.DebugLevel, self.plan.scenario.debug.upper()))
        # on a GPU the communicator is made here, and not in the first call that happens to need it
        more = {"device_id": self.device} if self.device.type == "cuda" else {}
        began_s = time.monotonic()
        dist.init_process_group(
            backend,
            store=store,
            rank=self.rank,
            world_size=self.plan.world_size,
            timeout=timedelta(seconds=self.plan.world.timeout_s),
            **more,
        )
        self.made_s = time.monotonic() - began_s
        self._keep(WORLD, dist.group.WORLD)
        self._tell_ranks(dist.group.WORLD)
        if calls_functions(self.plan):
            require_callable(self.device, self.plan.world_size)
            self.calls = Service(self.torch, self.plan, self.rank, store)
            self.calls.start()

    def renew(self, plan: Plan) -> World:
        """Return the world of the next scenario over the group of this one, which has no other."""
        forget_layouts()
        world = World(self.torch, plan, self.rank, self.device)
        group = self.handle(WORLD)
        timeout = timedelta(seconds=plan.world.timeout_s)
        self.dist.distributed_c10d._set_pg_timeout(timeout, group)
        world._keep(WORLD, group)
        self.forget()
        return world

    def serve_while(self, call: Callable[[], T]) -> T:
        """Make a call that waits for others, or sleeps; functions of theirs may run meanwhile."""
        return call() if self.calls is None else self.calls.serve_while(call)

    def take_device(self) -> None:
        """Make the world's device the current one of the thread that calls."""
        if self.device.type == "cuda":
            self.torch.cuda.set_device(self.device)

    def _tell_ranks(self, handle: Any) -> None:
        """Tell NCCL's group which ranks its world has.

        torch tells each group but the world's own, which it takes for that with the first NCCL
        group of the process. In any later one the list is empty, and the first mesh of it reads
        beyond its end (`groupRanks`, ProcessGroupNCCL.cpp, seen in torch 2.11).
        """
        if self.device.type == "cpu":
            return
        with suppress(RuntimeError, AttributeError):  # no NCCL group, or a torch before 2.1
            options = handle._get_backend(self.device).options
            options.global_ranks_in_group = list(range(self.plan.world_size))

    def create(self, creation: Creation) -> None:
        """Make the groups of one entry of `groups:`. Raises what torch raises."""
        getattr(self, creation.kind)(creation)

    def _keep(self, name: str, handle: Any) -> None:
        self._handles[name] = handle
        if handle is not None and not isinstance(handle, int):
            self._made.append(handle)

    def adopt(self, group: Group, handle: Any) -> None:
        """Learn a group that a step created."""
        self._keep(group.name, handle)

    def new_group(self, creation: Creation) -> None:
        """Create one group; its author's order of ranks is kept only where asked for."""
        spec = creation.spec
        group = creation.groups[0]
        more: dict[str, Any] = {} if spec.sort_ranks else {"sort_ranks": False}
        handle = self.dist.new_group(
            list(group.ranks), timeout=_timeout(group), backend=spec.backend, **more
        )
        self._keep(spec.name, handle)

    def new_subgroups(self, creation: Creation) -> None:
        """Create groups of equal size."""
        spec = creation.spec
        timeout = timedelta(seconds=self._seconds(creation))
        own, every = self.dist.new_subgroups(
            creation.shape[0], timeout=timeout, backend=spec.backend
        )
        self._made.extend(group for group in every if not isinstance(group, int))
        self._keep(spec.name, own)

    def new_subgroups_by_enumeration(self, creation: Creation) -> None:
        """Create the parts of a partition."""
        spec = creation.spec
        own, every = self.dist.new_subgroups_by_enumeration(
            [list(group.ranks) for group in creation.groups],
            timeout=timedelta(seconds=self._seconds(creation)),
            backend=spec.backend,
        )
        self._made.extend(group for group in every if not isinstance(group, int))
        self._keep(spec.name, self.outside if own is None else own)

    def init_device_mesh(self, creation: Creation) -> None:
        """Create a device mesh and name its dimensions' groups.

        It takes no timeout, and the groups' default is 30 minutes whatever the world's is; the
        options of a Gloo group, or torch's own setter, carry the scenario's.
        """
        from torch.distributed.device_mesh import init_device_mesh

        spec = creation.spec
        mesh = init_device_mesh(self.device.type, creation.shape, mesh_dim_names=spec.dims)
        timeout = timedelta(seconds=self._seconds(creation))
        inside = mesh.get_coordinate() is not None  # a mesh may be smaller than the world
        self._meshes[spec.name] = mesh
        if spec.flatten is not None:
            mesh._flatten(spec.flatten)  # torch has no public name for it
        for dim in spec.dims:
            group = mesh.get_group(dim) if inside else self.outside
            if inside and group is not self.dist.group.WORLD:
                self.dist.distributed_c10d._set_pg_timeout(timeout, group)
            self._keep(f"{spec.name}.{dim}", group)

    def _seconds(self, creation: Creation) -> float:
        groups = creation.groups
        return groups[0].timeout_s if groups else self.plan.scenario.timeout_s

    # ------------------------------------------------------------------ asking

    @property
    def outside(self) -> Any:
        """What torch hands to a rank that is not a member of a group."""
        return self.dist.GroupMember.NON_GROUP_MEMBER

    def handle(self, name: str) -> Any:
        """Return the process group that a name means on this rank; None is a destroyed world."""
        if name == WORLD:
            return self.dist.group.WORLD
        return self._handles.get(name, self.outside)

    def mesh(self, name: str) -> Any:
        """Return the device mesh of a name, or one dimension of it: `mesh`, `mesh.dp`."""
        whole, _, dim = name.partition(".")
        mesh = self._meshes[whole]
        return mesh[dim] if dim and mesh.ndim > 1 else mesh

    def group_rank(self, name: str) -> int:
        """`get_rank`, as torch answers it; -1 for a non-member."""
        handle = self.handle(name)
        return -1 if isinstance(handle, int) else int(self.dist.get_rank(handle))

    def group_size(self, name: str) -> int:
        """`get_world_size`, as torch answers it; 0 for a non-member (torch says -1)."""
        handle = self.handle(name)
        return 0 if isinstance(handle, int) else int(self.dist.get_world_size(handle))

    def group_ranks(self, name: str) -> list[int]:
        """`get_process_group_ranks`, as torch answers it; empty for a non-member.

        torch itself would answer a non-member with the ranks of the last group created.
        """
        handle = self.handle(name)
        return [] if isinstance(handle, int) else list(self.dist.get_process_group_ranks(handle))

    # ------------------------------------------------------------------ a device

    def error(self) -> Exception | None:
        """Return what a backend found wrong on the device, where it tells (NCCL does).

        With `TORCH_NCCL_ASYNC_ERROR_HANDLING=0` torch's watchdog notes an error and goes on.
        """
        for handle in self._made:
            found = self._error_of(handle)
            if found is not None:
                return RuntimeError(found)
        return None

    def _error_of(self, handle: Any) -> str | None:
        try:
            error = handle._get_backend(self.device).get_error()
        except (RuntimeError, AttributeError):
            return None  # torch before 2.7, or a backend that does not tell
        return ERRORS.get(str(error).rpartition(".")[2])

    def witness(self) -> tuple[str, ...]:
        """Return where this rank is in a hang on a device, and what the flight recorder holds."""
        if self.device.type == "cpu":
            return ()
        at = find_place()
        here = (f"rank {self.rank} is in {at}",) if at else ()
        try:
            dump = flight_recorder.read(self.torch)
        except RuntimeError as error:
            return (*here, f"flight recorder of rank {self.rank}: {error}")
        return (*here, flight_recorder.note(self.rank, dump))

    def works(self) -> bool:
        """Reduce a number over the world; whether it came out right, and in time."""
        ones = self.torch.ones(1, device=self.device)
        work = self.dist.all_reduce(ones, async_op=True)
        if self.device.type == "cpu":
            work.wait(timedelta(seconds=PROOF_S))
        else:
            deadline_s = time.monotonic() + PROOF_S
            if device.wait(work.is_completed, deadline_s=deadline_s) != "happened":
                return False
            work.wait()
        return bool(ones.item() == self.plan.world_size)

    # ------------------------------------------------------------------ ending

    def mend(self, error: BaseException) -> None:
        """Take back what a call that raised left behind on a device.

        Where NCCL itself failed, torch goes on counting a group that is closed, and cannot make
        another world on this thread: the process is replaced.
        """
        close_groups(self.torch, self.device)
        self.spoilt = self.spoilt or "NCCL error in" in str(error)

    def poison(self) -> None:
        """Break every operation that is stuck on a group of this rank, from another thread.

        On Gloo a receive that times out closes all connections of its group at once, and whatever
        is blocked on them raises: `abort` does nothing there, and `destroy` waits for the timeout.
        What hangs on a device, or on a backend of one's own, is aborted.
        """
        for handle in self._made:
            try:
                self._poison_one(handle)
            except (RuntimeError, ValueError, TypeError, AttributeError):
                continue  # its connections are closed already, or it has none
        if self.device.type != "cpu":
            self._abort_each()

    def _allow_time_to_abort(self) -> None:
        """Give the communicators ABORT_S to be aborted in.

        torch waits for an abort as long as for a call of the group (ProcessGroupNCCL.cpp, `abort`),
        and a scenario may allow half a second. On ranks that share a GPU an abort takes longer.
        """
        c10d = self.dist.distributed_c10d
        change = getattr(self.dist, "set_timeout", None) or c10d._set_pg_timeout
        for handle in list(c10d._world.pg_map):
            with suppress(RuntimeError, AttributeError):
                change(timedelta(seconds=ABORT_S), handle)

    def _abort_each(self) -> None:
        """Abort the groups without touching torch's own tables, which are the main thread's."""
        self._aborted = True
        for handle in reversed(self._made):
            with suppress(RuntimeError):  # it did not end in time, or is no NCCL group
                handle.abort()

    def _poison_one(self, handle: Any) -> None:
        size, own = handle.size(), handle.rank()
        if size < 2 or self.device.type != "cpu":
            return
        if not self._is_on_gloo(handle):
            handle.abort()
            return
        peer = (own + 1) % size
        work = handle.recv([self.torch.zeros(1)], peer, POISON_TAG)
        work.wait(timedelta(milliseconds=1))

    def _is_on_gloo(self, handle: Any) -> bool:
        """Return whether a group moves tensors of the CPU over Gloo, alone or beside another."""
        if "gloo" in str(handle.name()).lower():
            return True
        try:
            beside = handle._get_backend(self.torch.device("cpu"))
        except RuntimeError:
            return False
        return "gloo" in str(beside.name()).lower()

    def drop(self, reaper: Reaper, works: list[Any], *, poison: bool) -> None:
        """Let go of the groups; the reaper pays for the end of their connections."""
        dist = self.dist
        kept = [*self._made, *dist.distributed_c10d._world.pg_map]
        if dist.is_initialized():
            self._end()
        forget_layouts()
        if not poison or self._aborted:
            self.forget()
        reaper.take(self if poison and not self._aborted else None, kept, works)

    def _end(self) -> None:
        """Let torch forget the groups. On a device that is an abort: see below.

        `destroy_process_group` waits for every kernel of a communicator, for one that hangs for
        ever, and also for a message that no rank receives and no call waits for. By the time a
        world is dropped every rank has told how it ended, so that an abort takes nothing from
        anybody.
        """
        c10d = self.dist.distributed_c10d
        abort = getattr(c10d, "_abort_process_group", None)
        if self.device.type == "cpu" or abort is None:
            self.dist.destroy_process_group()
            return
        self._aborted = True
        self._allow_time_to_abort()
        try:
            abort()
        except RuntimeError as error:
            message = f"the communicators of the scenario before could not be aborted: {error}"
            raise LaunchError(message) from error

    def forget(self) -> None:
        """Let go of every group."""
        self._made.clear()
        self._handles.clear()
        self._meshes.clear()


def _timeout(group: Group) -> timedelta:
    return timedelta(seconds=group.timeout_s)


class Reaper:
    """A thread that holds the last reference to old worlds, and lets it go."""

    def __init__(self) -> None:
        """Start the thread."""
        self._queue: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="reaper", daemon=True).start()

    def take(self, poisoned: World | None, groups: list[Any], works: list[Any]) -> None:
        """Take over groups and the work handles on them."""
        self._queue.put([poisoned, groups, works])

    def _run(self) -> None:
        while True:
            batch = self._queue.get()
            world, groups, works = batch
            batch.clear()
            if world is not None:
                world.poison()
                world.forget()
            works.clear()
            groups.clear()
            del world, groups, works


#: what empties DTensor's caches: torch 2.13 has one for both, torch 2.10 one for each
CACHES_OF_LAYOUTS = (
    "_clear_sharding_prop_cache",
    "_clear_python_sharding_prop_cache",
    "_clear_fast_path_sharding_prop_cache",
)


def forget_layouts() -> None:
    """Let DTensor forget what it has derived on meshes that are gone.

    It keeps the result of an operation by the operands' layouts, and takes meshes of the same ranks
    for one: a later scenario would get a mesh whose groups are not there any more.
    """
    if "torch.distributed.tensor" in sys.modules:
        debug = import_module("torch.distributed.tensor.debug")
        for name in CACHES_OF_LAYOUTS:
            clear = getattr(debug, name, None)
            if clear is not None:
                clear()
