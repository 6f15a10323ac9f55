"""The fork server: it imports torch once, and forks every worker."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from typing import Any

from msgspec.structs import replace

from torch_scenarios.errors import LaunchError, StartError, UnsupportedError
from torch_scenarios.execution.backends import Sharing, choose_backend, lack_of
from torch_scenarios.execution.channel import Channel
from torch_scenarios.execution.heartbeat import BeatListener, Beats, is_stopped
from torch_scenarios.execution.letters import Secret
from torch_scenarios.execution.local_store import LocalStore
from torch_scenarios.execution.protocol import TERMINATED, Job, Supervision
from torch_scenarios.execution.supervisor import Supervisor
from torch_scenarios.model.traits import carrier, device_type
from torch_scenarios.worker.watcher import open_store
from torch_scenarios.worker.world import forget_layouts

# -------------------------------------------------------------------------------------------------
# torchrun's agent without log files: nothing is written, so nothing can be left behind.


def no_logs() -> Any:
    """Return what sends every worker's output where the host's goes; imports torch."""
    from torch.distributed.elastic.multiprocessing.api import (
        LogsDest,
        LogsSpecs,
    )

    class NoLogs(LogsSpecs):
        def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
            """Return no destinations, and no error files."""
            ranks = range(len(envs))
            for local_rank in ranks:
                envs[local_rank]["TORCHELASTIC_ERROR_FILE"] = ""
            return LogsDest(
                stdouts=dict.fromkeys(ranks, ""),
                stderrs=dict.fromkeys(ranks, ""),
                error_files=dict.fromkeys(ranks, os.devnull),
            )

        @property
        def root_log_dir(self) -> str:
            """There is none."""
            return os.devnull

    return NoLogs()


#: the name under which torchrun's agent finds the rendezvous of a host that is alone
ONE_HOST = "torch_scenarios_one_host"


def meet_on_one_host(parameters: Any) -> Any:
    """Return the rendezvous of an agent that is alone: its store is in its own memory.

    Torch's own has a TCPStore, whose server has a thread, sockets and an event loop: workers would
    be forked with them, and with a lock that the thread holds at the time. The workers have the
    endpoint in their environment, where a TCPStore serves once all are forked. Imports torch.
    """
    import torch.distributed
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo
    from torch.distributed.elastic.rendezvous.api import RendezvousStoreInfo

    dist: Any = torch.distributed
    address, port = parameters.endpoint.rsplit(":", 1)

    class OneHost(RendezvousHandler):
        def get_backend(self) -> str:
            """Return the name under which it is found."""
            return ONE_HOST

        @property
        def use_agent_store(self) -> bool:
            """Workers meet in a store of this process."""
            return True

        def next_rendezvous(self) -> Any:
            """Return the only one that there is."""
            return RendezvousInfo(dist.HashStore(), 0, 1, RendezvousStoreInfo(address, int(port)))

        def is_closed(self) -> bool:
            """It never is."""
            return False

        def set_closed(self) -> None:
            """No other agent could come."""

        def num_nodes_waiting(self) -> int:
            """None but this one exists."""
            return 0

        def get_run_id(self) -> str:
            """Return the name of the launch."""
            return str(parameters.run_id)

        def shutdown(self) -> bool:
            """Nothing is open."""
            return True

    return OneHost()


# -------------------------------------------------------------------------------------------------
# One launch: a local store, the workers that torchrun's agent forks, the supervisor over them.

#: torch's own store would listen to the whole network, and asks no one who he is
ADDRESS = "127.0.0.1"
BACKLOG = 512
#: bytes of what workers printed that are looked at where they do not come up
SAID = 100_000
#: seconds that workers get to come up, once and once more
START_S = 30.0
#: seconds that a connection of this machine to itself may take
PROBE_S = 10.0
#: seconds between two looks whether all workers are forked
FORK_LOOK_S = 0.002


def _probe() -> None:
    """Connect to this machine once. Raises OSError at once where nothing can.

    A store would try again for minutes.
    """
    with (
        socket.create_server((ADDRESS, 0)) as listener,
        socket.create_connection(listener.getsockname(), timeout=PROBE_S),
    ):
        pass


def _count_output() -> int:
    """Return how many bytes this process and its workers have printed: it goes to a file."""
    return os.fstat(2).st_size


class Launch:
    """The workers of one launch: their processes, and the supervisor over them.

    A scenario with fewer ranks takes the first of them. The launch ends with a scenario that ends
    one of its processes, and the next one gets another launch.
    """

    def __init__(self, number: int, size: int) -> None:
        """Open the store of the launch, and a port at which torch's process groups will meet.

        Raises OSError where this machine has no port or no descriptor for it.
        """
        self.size = size
        self._said_before = _count_output()
        _probe()
        self.name = f"launch-{os.getpid()}-{number}"
        self.listener = socket.create_server((ADDRESS, 0), backlog=BACKLOG)
        self.port: int = self.listener.getsockname()[1]
        self._server: Any = None
        self.gate = os.pipe()
        self.beats = Beats.create(size)
        self._listener: BeatListener | None = None
        self._processes: dict[int, BaseProcess] = {}
        self._sharing: Sharing | None = None
        self._used_gpus = False
        self.ended = threading.Event()
        self.failure = ""
        self.local_store = LocalStore(Secret.random())
        self.local_store.start()
        self.supervisor = Supervisor(self.local_store, self.deaths, self.find_lost)

    def _read_output(self) -> str:
        """Return what its workers printed before they were up."""
        with suppress(OSError):
            return os.pread(2, SAID, self._said_before).decode(errors="replace")
        return ""

    def suits(self, sharing: Sharing | None) -> bool:
        """Return whether its workers' NCCL can still be told to share GPUs like this.

        NCCL reads its environment once in a process's life.
        """
        return not self._used_gpus or sharing == self._sharing

    def takes(self, sharing: Sharing | None, *, on_gpus: bool) -> None:
        """Note that its workers use GPUs, and how they share them."""
        if on_gpus:
            self._used_gpus, self._sharing = True, sharing

    def meet(self) -> None:
        """Wait for the workers. Raises LaunchError where one does not come up, or no store.

        It is a StartError where the machine lacks something, which it still will the next time.

        The store serves once the last one is forked: a lock that its thread held at a fork would
        stay locked in that worker. None connects before.
        """
        import torch.distributed

        while len(active_children()) < self.size and not self.ended.is_set():
            time.sleep(FORK_LOOK_S)
        self._server = open_store(torch.distributed, ADDRESS, self.listener, START_S)
        os.write(self.gate[1], b"." * self.size)
        try:
            came = self.supervisor.greet(self.size, START_S)
        except LaunchError as error:
            said = self._read_output()
            lack = lack_of(said) or lack_of(self.failure)
            if lack is None:
                raise
            message = f"a launch of {self.size} processes cannot start: {lack}"
            raise StartError(message, self.size) from error
        by_pid = {process.pid: process for process in active_children()}
        self._processes = {
            rank: by_pid[hello.pid] for rank, hello in came.items() if hello.pid in by_pid
        }
        self._listener = BeatListener(self.beats, {rank: hello.pid for rank, hello in came.items()})

    def deaths(self) -> dict[int, str]:
        """Return how the workers ended that ended otherwise than they were told to."""
        found: dict[int, str] = {}
        if self.ended.is_set():
            found = dict.fromkeys(self._processes or (0,), self.failure or "its launch ended")
        for rank, process in self._processes.items():
            code = process.exitcode
            if code:
                found[rank] = signal.Signals(-code).name if code < 0 else f"exit {code}"
        # torchrun's agent tells all others to end where one has ended: they are no deaths beside it
        words = f"exit {TERMINATED}"
        causes = {rank: how for rank, how in found.items() if how != words}
        return causes or dict.fromkeys(found, "SIGTERM")

    def has_stopped(self) -> bool:
        """Whether a worker is stopped, which nothing asks of it: the next scenario need not pay."""
        return any(is_stopped(process.pid or 0) for process in self._processes.values())

    def find_lost(self, watch: Supervision) -> dict[int, str]:
        """Return the workers of a scenario's world that do not run any more, in words."""
        if self._listener is None:
            return {}
        found = self._listener.find_lost(stopped_s=watch.stopped_s, silent_s=watch.silent_s)
        return {rank: how for rank, how in found.items() if rank < watch.world_size}

    def end(self) -> None:
        """End the workers, and wait until torchrun's agent has noticed."""
        for process in (*self._processes.values(), *active_children()):
            if process.pid is not None and process.exitcode is None:
                with suppress(ProcessLookupError):  # torchrun's agent came first and reaped it
                    os.kill(process.pid, signal.SIGKILL)
        self.ended.wait()
        # a store's server is ended here, not by the garbage collector of another process: a forked
        # worker has no such thread to join
        self.supervisor.close()
        self.local_store.close()
        self._server = None
        self.listener.close()
        for descriptor in self.gate:
            os.close(descriptor)
        self.beats.close()
        # torchrun's agent leaves its pipes to the collector
        gc.collect()


# -------------------------------------------------------------------------------------------------
# The host: the process that torch is imported in once, and that every worker is forked from.
#
# `python -m torch_scenarios.worker.fork_server CONTROL LIFELINE BEATS` is started by
# :mod:`torch_scenarios.execution.launcher` and by no other process. Its main thread runs torchrun's
# agent, one launch after the other; a second thread supervises: it takes jobs from the control
# socket and answers them; a third beats, so that the near side knows a host that is stopped from
# one that works. When the lifeline closes, however its other end died, the host takes its process
# group with it.

#: seconds between two looks of torchrun's agent at its workers
AGENT_LOOK_S = 0.05


class Host:
    """Serves jobs; the launches themselves are run by the main thread.

    Only the main thread forks: a fork copies the thread that calls it and no other, and a lock that
    another one held would stay locked in the child for ever.
    """

    def __init__(self, control: socket.socket, lifeline: int) -> None:
        """Take jobs from `control`."""
        self._descriptor = control.fileno()
        self._control = Channel(control)
        self._lifeline = lifeline
        self._wanted: queue.SimpleQueue[Launch | None] = queue.SimpleQueue()
        self._launch: Launch | None = None
        self._launches = 0
        #: what the last scenario did to the launch: it can take no other
        self._spoilt = False
        self._ready = threading.Event()

    def start(self) -> None:
        """Start the threads; torch need not be there yet."""
        threading.Thread(target=self._hold_lifeline, daemon=True).start()
        threading.Thread(target=self._serve, daemon=True).start()

    def _hold_lifeline(self) -> None:
        os.read(self._lifeline, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    # ------------------------------------------------------------------ the main thread

    def run(self) -> None:
        """Run launches as they are wanted; call in the main thread, once torch is imported."""
        from torch.distributed.elastic.rendezvous import rendezvous_handler_registry

        rendezvous_handler_registry.register(ONE_HOST, meet_on_one_host)
        self._ready.set()
        while (launch := self._wanted.get()) is not None:
            try:
                self._run_agent(launch)
            except Exception as error:  # noqa: BLE001 -- whatever ends a launch is reported to its jobs
                launch.failure = _explain_end(error)
            finally:
                launch.ended.set()

    def _run_agent(self, launch: Launch) -> None:
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch

        from torch_scenarios.worker.serve import serve_launch

        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=launch.size,
            run_id=launch.name,
            rdzv_backend=ONE_HOST,
            rdzv_endpoint=f"{ADDRESS}:{launch.port}",
            max_restarts=0,
            monitor_interval=AGENT_LOOK_S,
            start_method="fork",
            logs_specs=no_logs(),
        )
        local_store = launch.local_store
        closed = (
            self._descriptor,
            launch.gate[1],
            launch.listener.fileno(),
            *local_store.descriptors,
        )
        elastic_launch(config, serve_launch)(
            launch.name, local_store.address, launch.gate[0], self._lifeline, launch.beats, closed
        )

    # ------------------------------------------------------------------ the serving thread

    def _serve(self) -> None:
        """Answer jobs until the near side is gone; the host never outlives this thread."""
        try:
            with suppress(EOFError):
                while True:
                    # from the near side, which is this very program
                    self._answer(pickle.loads(self._control.receive()))  # noqa: S301
        finally:
            # the near side reads the end of the line, and waits for no rank
            os.killpg(os.getpgrp(), signal.SIGKILL)

    def _answer(self, job: Job) -> None:
        try:
            answer: Any = self._do(job)
        except (LaunchError, UnsupportedError) as error:
            answer = error
        except Exception as error:  # noqa: BLE001 -- the near side must not wait for ever
            self._spoilt = True
            answer = LaunchError(f"{type(error).__name__}: {error}")
        self._control.send(pickle.dumps(answer, protocol=5))
        self._prepare(job)

    def _do(self, job: Job) -> Any:
        """Run a job on ranks that are there, or on new ones.

        New ones are forked where the job asks for it, where there are too few, where one has died
        or stopped, or where they share GPUs in another way than this backend needs. Modules of a
        plugin are imported here before: forked ranks have them without an import of their own.
        """
        self._ready.wait()
        import torch

        order = job.order
        missing = [name for name in order.plan.modules if name not in sys.modules]
        if missing:
            for name in missing:
                import_module(name)
            forget_layouts()  # what a worker calls behind each scenario is imported here, once
            self._give_up()  # its workers would each import them anew, all at once
        choice = choose_backend(
            torch,
            order.backend,
            order.plan,
            share_gpu=order.share_gpu,
            here=max(job.size, 0 if job.fresh or not self._launch else self._launch.size),
            needs=order.needs,
        )
        order = replace(order, backend=choice.backend, sharing=choice.sharing)
        launch = self._launch
        if launch is not None and (
            job.fresh
            or launch.size < job.size
            or launch.deaths()
            or launch.has_stopped()
            or not launch.suits(choice.sharing)
        ):
            self._give_up()
            launch = None
        if launch is None:
            launch = self._begin_at_last(job.size)
        launch.takes(choice.sharing, on_gpus=device_type(choice.backend) != "cpu")
        began_s = time.monotonic()
        watch = job.own.get(carrier(choice.backend), job.watch)
        findings = launch.supervisor.run(order, watch)
        if findings.unbegun:
            # it may have been killed or stopped before this scenario came: another one can run it
            self._give_up()
            launch = self._begin_at_last(job.size)
            launch.takes(choice.sharing, on_gpus=device_type(choice.backend) != "cpu")
            began_s = time.monotonic()
            findings = launch.supervisor.run(order, watch)
        self._spoilt = not findings.usable
        return replace(
            findings,
            busy_s=time.monotonic() - began_s,
            environment=choice.environment,
            notes=(*choice.notes, *findings.notes),
        )

    def _prepare(self, job: Job) -> None:
        """Make ready for the next scenario while the near side judges this one."""
        launch = self._launch
        if launch is None:
            return
        try:
            usable = not self._spoilt and launch.supervisor.settle()
        except RuntimeError:  # its store is gone
            usable = False
        if usable:
            return
        self._give_up()
        if not job.fresh:
            with suppress(LaunchError):  # the next job will say so, if it is so again
                self._begin(launch.size)

    def _begin_at_last(self, size: int) -> Launch:
        """Begin a launch; once more where its workers do not come up. Raises StartError."""
        try:
            return self._begin(size)
        except StartError:
            raise
        except LaunchError:
            try:
                return self._begin(size)
            except StartError:
                raise
            except LaunchError as error:
                message = f"a launch of {size} processes did not start twice: {error}"
                raise StartError(message, size) from error

    def _begin(self, size: int) -> Launch:
        self._launches += 1
        try:
            launch = Launch(self._launches, size)
        except (OSError, RuntimeError) as error:
            raise _lacking(error) from error
        self._wanted.put(launch)
        self._launch = launch
        try:
            launch.meet()
        except LaunchError:
            self._give_up()
            raise
        except (OSError, RuntimeError) as error:  # no store
            self._give_up()
            raise _lacking(error) from error
        return launch

    def _give_up(self) -> None:
        self._spoilt = False
        launch, self._launch = self._launch, None
        if launch is not None:
            launch.end()


def _lacking(error: Exception) -> StartError:
    return StartError(f"no launch can start: {lack_of(str(error)) or error}")


def _explain_end(error: Exception) -> str:
    """Return in a line why a launch ended: the worker that failed, or the agent's own words."""
    failures = getattr(error, "failures", None)
    if failures:
        rank, failure = next(iter(sorted(failures.items())))
        return f"worker {rank}: exit code {failure.exitcode}"
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]


def let_signals_end_workers() -> None:
    """Let a signal end each process that is forked from now on, from its first moment.

    In this process torchrun's agent takes signals by raising, also while a worker is being forked;
    of what is raised in a worker, torch writes a file that stays. An interrupt is this side's.
    """

    def reset_signals() -> None:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    os.register_at_fork(after_in_child=reset_signals)


def main() -> None:
    """Serve until the near side is gone."""
    let_signals_end_workers()
    control, lifeline, beats = (int(argument) for argument in sys.argv[1:])
    logging.disable(logging.CRITICAL)
    host = Host(socket.socket(fileno=control), lifeline)
    host.start()
    # workers are forked with everything imported
    import array_api_compat.torch
    import torch.distributed.launcher.api

    import torch_scenarios.worker.serve  # noqa: F401

    assert torch
    assert array_api_compat
    # what is imported stays for good: to look through it takes the collector 50 ms each time, which
    # mail of many objects sets off, and would touch each page that the workers share
    gc.freeze()
    # not before: what is imported may hold the interpreter's lock for as long as a disk takes
    Beats(beats).keep(0)
    host.run()


if __name__ == "__main__":
    main()
