"""The worker: one rank of a launch. Runs under torchrun, srun, or whatever sets their variables.

`scenario run` forks it from a process that has torch already. By hand it is an ordinary program:

    torchrun --nproc-per-node 4 -m torch_scenarios.worker scenarios/p2p

It takes orders from the store that torchrun provides, one scenario after the other, and tells there
what it saw. It is the one module that imports torch.
"""

from __future__ import annotations

import atexit
import gc
import hashlib
import importlib
import importlib.util
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed

from torch_scenarios.errors import LaunchError, UnsupportedError
from torch_scenarios.execution import backends, protocol
from torch_scenarios.execution.backends import is_bound, lack_of, require_known
from torch_scenarios.execution.heartbeat import Beats
from torch_scenarios.execution.letters import ForgedError, Secret
from torch_scenarios.execution.local_store import LocalStore, LocalStoreAddress
from torch_scenarios.execution.nodes import (
    FRONT,
    Follower,
    Leader,
    ProcessPlace,
    agent_has_store,
    end_agent,
    name_of_node,
)
from torch_scenarios.expressions.functions import TorchArrays
from torch_scenarios.model.traits import carrier, device_type
from torch_scenarios.operations.base import ProcessExit
from torch_scenarios.worker import watcher
from torch_scenarios.worker.board import Board, Converter, DeviceCopies
from torch_scenarios.worker.calls import Service
from torch_scenarios.worker.device import completion_on
from torch_scenarios.worker.frontend import BYE, BYE_S, INCONCLUSIVE, CommandLine, Frontend
from torch_scenarios.worker.program import BrokenCallError, Pending, Program, plain_only
from torch_scenarios.worker.world import ATTEMPTS, Reaper, Start, World, is_unconnected

#: typed as little as torch exports its names
dist: Any = torch.distributed
#: seconds that the leader of a node gets to say first that the store is gone
FOLLOW_S = 3.0
#: seconds that what a plugin registered for the end of a process gets
PLUGINS_S = 5.0


class Worker:
    """One rank of a launch, from its first scenario to its last.

        order --> make the world --> all are ready --> steps --> report --> destroy the world

    Ranks begin together, once all are ready (decision 34): else a slow import on one of them would
    look like a late rank.
    """

    def __init__(
        self,
        rank: int,
        connect: Callable[[], watcher.Connection],
        *,
        lifeline: int | None = None,
        alone: Callable[[str], None] = lambda _: os.kill(os.getpid(), signal.SIGKILL),
        told: Callable[[], None] = lambda: None,
    ) -> None:
        """Connect to the store: once for the main thread, once for those beside it.

        The process ends when `lifeline` closes; `alone` is called where the store is gone, and with
        it all that wants to know; `told` where SIGTERM reaches this process.
        """
        self.rank = rank
        self._connect = connect
        self._line = connect().open()
        self._second = connect()
        self._beside: protocol.Store = self._second.store
        self._turn = 0
        self._plugins: set[str] = set()
        self._reaper = Reaper()
        self._watcher = watcher.Watcher(
            self._beside, rank, lifeline=lifeline, alone=alone, told=told
        )
        self._running: watcher.WatchedScenario | None = None
        self._world: World | None = None
        #: the part in the RPC world of the scenario before: it serves until the next one begins
        self._calls: Service | None = None
        #: the work that names of the scenario keep
        self._pending: dict[str, Pending] = {}
        self._stderr = watcher.StandardError()
        self._last_words = watcher.AbortHandler(self._speak)

    @property
    def store(self) -> protocol.Store:
        """The main thread's connection."""
        store: protocol.Store = self._line.store
        return store

    def serve(self, files: Mapping[str, str] | None = None) -> None:
        """Take orders until told to stop. Raises RuntimeError where the store is gone.

        `files` are those that this rank's node has read, where the rank leads it.
        """
        warnings.simplefilter("ignore")
        plain_only(dist)
        self._watcher.listen()
        digest = ""
        if files is not None:
            protocol.put(self.store, f"files/{self.rank}", files)
            digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
        hello = protocol.WorkerReady(
            rank=self.rank,
            pid=os.getpid(),
            host=socket.gethostname(),
            versions=versions(),
            digest=digest,
        )
        protocol.Outbox(self.store, "mail").post(hello)
        while (number := self._await_number()) != protocol.STOP:
            self._obey(
                protocol.open_parts(
                    protocol.fetch(self.store, f"order/{number}", keep=True), protocol.Assignment
                )
            )

    def _await_number(self) -> int:
        """Wait for the number of the next scenario that this rank takes part in."""
        self._turn += 1
        return int(protocol.await_key(self.store, f"turn/{self.rank}/{self._turn}"))

    # ------------------------------------------------------------------ one scenario

    def _obey(self, order: protocol.Assignment) -> None:
        """Do what an order asks: make or keep a world, run the scenario, post what came of it.

        A start whose ranks do not find each other is tried again, unless devices are involved.
        """
        self._stderr.clear()
        name = order.place
        mail = protocol.Outbox(self.store, f"{name}/mail")
        if order.looks:
            self._look(order, mail)
            return
        for attempt in range(1, ATTEMPTS + 1):
            start = Start(self.store, name, attempt, order.plan.world_size)
            # what did not come to be between devices may hang, and is not tried again
            last = attempt == ATTEMPTS or device_type(order.backend) != "cpu"
            try:
                world = self._keep_world(order) if order.keeps_world else None
                if world is None:
                    self._let_go(poison=False)
                    world = self._start(order, f"{name}/world/{attempt}")
                if order.proof:
                    self._prove(world, mail)
                    return
            except Exception as error:  # noqa: BLE001 -- whatever it is, the supervisor must know
                if last or order.proof or not is_unconnected(error):
                    lacks = isinstance(error, UnsupportedError)
                    reason = self._reason(error)
                    mail.post(
                        protocol.WorldFailed(rank=self.rank, reason=reason, unsupported=lacks)
                    )
                    return
                start.meet(failed=True)
                continue
            program, running = self._prepare(order, world, name)
            if attempt > 1:
                mail.post(
                    protocol.RankMoved(rank=self.rank)
                )  # from where it stood in the attempt before
            try:
                if self._run(program, running, mail, start, last=last):
                    return
            except Exception as error:
                mail.post(protocol.WorldFailed(rank=self.rank, reason=self._reason(error)))
                raise

    def _prepare(
        self, order: protocol.Assignment, world: World, name: str
    ) -> tuple[Program, watcher.WatchedScenario]:
        """Return a rank's program, and the watch over it, which has begun."""
        completion = completion_on(torch, world.device)
        world.on_device = on_device = completion.enqueues
        board = Board(
            self.rank,
            Converter(torch, DeviceCopies(torch, world.device) if on_device else None),
            completion.seconds if on_device else None,
        )
        running = watcher.WatchedScenario(
            self._beside,
            name,
            board,
            backend=carrier(order.backend),
            world=world,
            cut=self._line.cut,
        )
        self._running = running
        program = Program(
            order.plan,
            world,
            arrays_on(world.device),
            board=board,
            completion=completion,
            broken=lambda: self._was_broken(running),
        )
        self._pending = program.pending
        self._watcher.begin(running)
        return program, running

    def _look(self, order: protocol.Assignment, mail: protocol.Outbox) -> None:
        """Say whether this rank can use the folder of the scenario's checkpoints."""
        lack = order.folder and order.folder.lack()
        if lack is None:
            mail.post(protocol.RankFree(rank=self.rank))
        else:
            reason = f"rank {self.rank} on host {socket.gethostname()} {lack}"
            mail.post(protocol.WorldFailed(rank=self.rank, reason=reason, unsupported=True))

    def _prove(self, world: World, mail: protocol.Outbox) -> None:
        """Use a fresh world once; a worker whose device is lost says nothing, or that it is."""
        if world.works():
            mail.post(protocol.RankFree(rank=self.rank))
        else:
            mail.post(
                protocol.WorldFailed(rank=self.rank, reason="a fresh world did not reduce a number")
            )

    def _run(
        self,
        program: Program,
        running: watcher.WatchedScenario,
        mail: protocol.Outbox,
        start: Start,
        *,
        last: bool,
    ) -> bool:
        """Run a program to its end, whatever that is; False where its world is made once more.

        ProcessExit      the scenario kills this process: it reports what it has seen, and dies
        BrokenCallError  the supervisor ended a call that would not return: it reports where it was
                         blocked, settles, and is free for the next scenario
        else             it has come to its end, or raised
        """
        let_go = partial(self._let_go, poison=True)
        try:
            ending = program.prepare()
            if running.on_device:
                mail.post(protocol.WorldReady(rank=self.rank))
            failed = program.unconnected and not last
            if ending is not None and not failed:
                start.arrive()  # its peers go on without it
            elif not start.meet(failed=failed):
                return False
            ending = ending or program.run()
            if running.broken:
                # a host that waited for a device comes back without a word once that is aborted
                raise BrokenCallError  # noqa: TRY301 -- it ended as if the call had raised
        except ProcessExit as fault:
            running.tell("died", fault.how, via=mail)
            die(fault.how)
        except BrokenCallError:
            if running.came_back():
                self._line = self._connect()
                mail = protocol.Outbox(self.store, running.key("mail"))
            running.tell("blocked", via=mail)
            running.settle(self.store)
            let_go()
            running.free(mail)
            return True
        # after a failure as if the process had ended: its peers lose it now, not when all is over
        lost = ending == "raised" or program.lost
        running.tell(ending, via=mail, then=let_go if lost else None)
        return True

    def _start(self, order: protocol.Assignment, prefix: str) -> World:
        """Make the world of a scenario; its ranks find each other under `prefix` in the store."""
        for module in order.plugins:
            if module not in self._plugins:
                _import_plugin(module)
                self._plugins.add(module)
        require_known(torch, order.backend)
        if order.sharing is not None:
            os.environ.update(order.sharing.environment(self.rank))
        device = self._device(order)
        self._world = world = World(torch, order.plan, self.rank, device)
        world.folder = order.folder.path if order.folder else None
        if self._calls is not None:
            self._calls.drop()
        world.start(dist.PrefixStore(prefix, self._line.groups), order.backend)
        self._calls = world.calls
        return world

    def _keep_world(self, order: protocol.Assignment) -> World:
        """Return the world of the scenario before, for this one. Raises LaunchError without one."""
        if self._world is None:
            message = "the world of the scenario before is gone, in which this one was to run"
            raise LaunchError(message)
        self._pending.clear()
        self._world = world = self._world.renew(order.plan)
        world.folder = order.folder.path if order.folder else None
        return world

    def _device(self, order: protocol.Assignment) -> torch.device:
        """Return where this rank's tensors live: its own GPU for NCCL, else the CPU."""
        if device_type(order.backend) == "cpu":
            return torch.device("cpu")
        count = torch.cuda.device_count()
        index = int(os.environ.get("LOCAL_RANK", self.rank))
        if index >= count and not order.share_gpu and not is_bound(os.environ):
            message = f"rank {self.rank} is worker {index} of its machine, which has {count} GPUs"
            raise LaunchError(message)
        device = torch.device("cuda", index % count)
        torch.cuda.set_device(device)
        return device

    def _let_go(self, *, poison: bool) -> None:
        """Drop the world of the scenario before."""
        world, self._world = self._world, None
        works: list[Any] = list(self._pending.values())
        self._pending.clear()
        if world is not None:
            world.drop(self._reaper, works, poison=poison)

    def _reason(self, error: Exception) -> str:
        if isinstance(error, LaunchError | UnsupportedError):
            return str(error)
        words = lack_of(str(error)) if isinstance(error, OSError | RuntimeError) else None
        return f"rank {self.rank} could not run it: {words or f'{type(error).__name__}: {error}'}"

    def _was_broken(self, running: watcher.WatchedScenario) -> bool:
        """Return whether the supervisor broke what raised; a peer may hear of it first."""
        try:
            return running.broken or protocol.holds(self.store, running.key("break"))
        except RuntimeError:
            return running.broken  # the line was cut while it was asked

    def _speak(self) -> None:
        """Give the account of a process that is being aborted."""
        if self._running is not None:
            self._running.tell("died", "SIGABRT", notes=(self._stderr.tail(),))


def versions() -> dict[str, str]:
    """Return the versions of what decides a verdict; ranks of one launch must agree on them."""
    try:
        own = metadata.version("torch-scenarios")
    except metadata.PackageNotFoundError:
        own = "not installed"
    python = ".".join(map(str, sys.version_info[:2]))
    return {"torch-scenarios": own, "torch": str(torch.__version__), "Python": python}


@cache
def arrays_on(device: torch.device) -> TorchArrays:
    """Return the array library of a device, which keeps nothing from one scenario to the next.

    To build its table of functions takes half of what a small scenario costs a rank.
    """
    return TorchArrays(torch, device)


def _import_plugin(module: str) -> None:
    """Import a module that may register a backend: installed, in the current folder, or a file."""
    if module.endswith(".py"):
        _import_file(Path(module))
        return
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        importlib.import_module(module)
    except ImportError as error:
        message = (
            f"the plugin {module!r} cannot be imported: {error}. A plugin is a module that is "
            "installed, or lies in the current folder."
        )
        raise LaunchError(message) from error


def _import_file(path: Path) -> None:
    """Import a plugin by its path; it is known under the name of the file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        message = f"the plugin {str(path)!r} is not a file that can be read"
        raise LaunchError(message)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (ImportError, SyntaxError) as error:
        message = f"the plugin {str(path)!r} cannot be imported: {error}"
        raise LaunchError(message) from error


def die(how: str) -> NoReturn:
    """End this process as a `fault` says: by a signal's name, or `exit N`."""
    if how.startswith("exit"):
        os._exit(int(how.split()[1]))
    os.kill(os.getpid(), getattr(signal, how))
    while True:
        signal.pause()


def serve_launch(
    prefix: str,
    local_store: LocalStoreAddress,
    gate: int,
    lifeline: int,
    beats: Beats,
    closed: tuple[int, ...],
) -> None:
    """Be one worker of a launch that `torch_scenarios.worker.fork_server` forked.

    Nothing is connected before a byte comes through the `gate`. It takes orders from `local_store`,
    and shows in `beats` that it runs. `closed` are descriptors of the host that a worker must not
    keep open.
    """
    watcher.die_with_parent()
    # what the host held is not the worker's to collect: it has threads that no fork inherits
    gc.freeze()
    for descriptor in closed:
        os.close(descriptor)
    os.read(gate, 1)
    os.close(gate)
    rank = int(os.environ["RANK"])
    shared = os.dup(2)
    try:
        beats.keep(rank)
        Worker(
            rank, partial(watcher.Connection.local, dist, prefix, local_store), lifeline=lifeline
        ).serve()
    except Exception as error:  # noqa: BLE001 -- whatever it is, the host says it
        # for the host, which wants to know why a worker does not come up
        os.write(shared, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)  # an exception that left here would be written to a file that stays
    os._exit(0)


# ---------------------------------------------------------------------------- by hand


def main(place: ProcessPlace, command_line: CommandLine, secret: Secret | None) -> None:
    """Be one rank of a launch that others started; rank 0 also reads, judges and reports.

    Without a `secret` all ranks are on this host, and the first process hands one to the others.
    torchrun's variables are set, whatever the launcher.
    """
    os.environ.update(backends.make_environment(os.environ))
    launch = f"{os.environ.get('TORCHELASTIC_RUN_ID', 'run')}/"
    launch += os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    watcher.die_with_parent()
    prefix, rank = f"torch_scenarios/{launch}", place.rank
    if rank == 0:
        own = os.getpid()
        if member := os.fork():
            Command(place, prefix, member, command_line, secret or Secret.random()).run()
        watcher.die_with_parent()
        if os.getppid() != own:
            os._exit(INCONCLUSIVE)  # it ended before it could take this process with it
    Member(rank, prefix, command_line, secret).run()


class Command:
    """The command line of rank 0: it reads, judges and reports, and leads a node.

    The worker of rank 0 is another process, so that a scenario that ends it, or whatever
    else does, takes no report with it.
    """

    def __init__(
        self,
        place: ProcessPlace,
        prefix: str,
        member: int,
        command_line: CommandLine,
        secret: Secret,
    ) -> None:
        """Connect to the store of the launch, which is opened here where no agent has.

        `member` is the process of rank 0; `secret` seals what is said. Where all ranks are on this
        host this process has what they say in a local store, and torch's store has nothing of it.
        """
        self._member = member
        self._server = None if agent_has_store(os.environ) else _open_store(place)
        sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
        beats = watcher.TorchLine(dist, prefix)
        self._lines: list[watcher.TorchLine | watcher.Connection] = [beats]
        local_store = LocalStore(secret) if place.is_alone else None
        store: Any = local_store
        if local_store is None:
            orders = watcher.Connection.seal(dist, prefix, secret)
            self._lines.append(orders)
            store = orders.store
        else:
            local_store.start()
        self._leader = Leader(
            beats.store,
            prefix,
            secret,
            FRONT,
            name_of_node(),
            lost=self._lose,
            local_store=local_store,
        )
        self._frontend = Frontend(
            torch, store, place.world_size, self._leader, command_line, self._join
        )

    def run(self) -> NoReturn:
        """Let the command line run in a thread, which ends this process."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._let_end)
        self._leader.start()
        self._frontend.start()
        while True:
            signal.pause()

    def _join(self) -> None:
        """Wait for the process of rank 0: a launcher wants to see its end first."""
        deadline_s = time.monotonic() + PLUGINS_S + BYE_S
        with suppress(ChildProcessError):
            while not os.waitpid(self._member, os.WNOHANG)[0] and time.monotonic() < deadline_s:
                time.sleep(0.005)

    def _let_end(self, *_: object) -> None:
        """Let rank 0 end, of which the command line hears, and leave it the time to report."""
        with suppress(ProcessLookupError):
            os.kill(self._member, signal.SIGTERM)
        timer = threading.Timer(watcher.LAST_S, os._exit, (INCONCLUSIVE,))
        timer.daemon = True
        timer.start()

    def _lose(self, reason: str) -> None:
        """Let every call on the store fail, which is out of reach: what is known is reported."""
        self._frontend.lose(reason)
        for line in self._lines:
            line.cut()


class Member:
    """One process of a launch that others started: a worker, and its part in its node.

    torchrun and srun set other variables, and say no more than rank, size and address. Who leads a
    node and where the secret is, the processes find out among themselves.
    """

    def __init__(
        self, rank: int, prefix: str, command_line: CommandLine, secret: Secret | None
    ) -> None:
        """Connect to the store of the launch; without a `secret` the first process hands it on."""
        self._command_line = command_line
        self._rank = rank
        self._prefix = prefix
        #: standard error as it is now: a worker's own goes into its account
        self._stderr = os.dup(2)
        self._losing = threading.Lock()
        self._parted = False
        doors, node = watcher.TorchLine(dist, prefix).store, name_of_node()
        leads = rank != 0 and int(os.environ.get("LOCAL_RANK", rank)) == 0
        self._node: Leader | Follower
        if leads and secret is not None:
            self._node = Leader(doors, prefix, secret, rank, node, lost=self._lose)
        else:
            self._node = Follower(doors, prefix, secret, rank, node, lost=self._lose)

    def run(self) -> NoReturn:
        """Serve until the run is over; every node ends with the code that the command line has."""
        self._node.start()
        secret = self._node.secret
        if secret is None:
            self._lose("the first process of its node did not come up")
            raise SystemExit  # the line before has ended the process
        connect = partial(watcher.Connection.seal, dist, self._prefix, secret)
        local_store = self._node.local_store if isinstance(self._node, Follower) else None
        if local_store is not None:
            connect = partial(watcher.Connection.local, dist, self._prefix, local_store)
        worker = Worker(self._rank, connect, alone=self._hear_store_lost, told=self._node.tell_told)
        leads = isinstance(self._node, Leader)
        # what a plugin starts may wait for all ranks of the launch, also for idle ones (MPI does)
        for module in self._command_line.plugins(sys.argv[1:]):
            with suppress(LaunchError):  # the first scenario says so
                _import_plugin(module)
        files = self._command_line.read(sys.argv[1:]) if leads or self._rank == 0 else None
        try:
            worker.serve(files)
            code = int(worker.store.get("code"))
        except (RuntimeError, ForgedError) as error:
            self._hear_store_lost(str(error))
        else:
            self._parted = True
            self._node.part()
            with suppress(RuntimeError):  # the command line did not wait any longer
                worker.store.add(BYE, 1)
            self._leave_plugins()
            # torchrun reports each process that fails: one of a node is enough
            os._exit(code if leads else 0)
        while True:
            signal.pause()  # the thread that hears of the node ends the process

    def _leave_plugins(self) -> None:
        """Run what plugins registered for the end of a process, for a few seconds at most."""
        timer = threading.Timer(PLUGINS_S, os._exit, (0,))
        timer.daemon = True
        timer.start()
        atexit._run_exitfuncs()

    def _hear_store_lost(self, error: str) -> None:
        """Take a thread's word that the store is gone; a leader soon finds out by itself."""
        if isinstance(self._node, Leader):
            self._lose(f"the connection to the store is lost ({error.strip().splitlines()[0]})")
        else:
            time.sleep(FOLLOW_S)
            if self._node.is_over:
                os._exit(0)  # the leader has known the end of the run, and reports its code
            self._lose("the connection to the store is lost")

    def _lose(self, reason: str) -> None:
        """End this process, and its node if it leads one: the command line is out of reach."""
        with self._losing:
            if self._parted:
                return  # the run is over, and the command line may have ended first
            if isinstance(self._node, Leader):
                self._node.tell_lost()
                end_agent()
            if reason:
                host = socket.gethostname()
                text = (
                    f"host {host} (rank {self._rank}) is cut off from rank 0: {reason}. Rank 0 "
                    "judges and reports; this node ends without a result, with exit code "
                    f"{INCONCLUSIVE}\n"
                )
                os.write(self._stderr, text.encode())
            os._exit(INCONCLUSIVE)


def _open_store(place: ProcessPlace) -> Any:
    """Open the store of a launch where no torchrun agent has (Slurm, Open MPI).

    It listens at the loopback interface where all ranks are on this host. Over several hosts it
    listens at every address, because the name of the first may lead to 127.0.1.1 on itself.
    """
    if place.is_alone:
        listener = socket.create_server((place.address, place.port), backlog=place.world_size + 8)
        return watcher.open_store(dist, place.address, listener, watcher.OPENS_S)
    return dist.TCPStore(place.address, place.port, is_master=True, wait_for_workers=False)
