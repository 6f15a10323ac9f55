"""One launch: a store, the workers that torchrun's agent forks, the supervisor over them."""

from __future__ import annotations

import gc
import os
import signal
import socket
import threading
import time
from contextlib import suppress
from datetime import timedelta
from functools import partial
from multiprocessing import active_children
from typing import TYPE_CHECKING, Any

from runner.execution.errors import lack_of
from runner.execution.heartbeat import Beats, Listener
from runner.execution.supervisor import Supervisor
from runner.problems import LaunchError, StartError

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from runner.execution.nccl import Sharing
    from runner.execution.orders import Watch

#: torch's own store would listen to the whole network; what travels through this one is pickled
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


def _server(dist: Any, port: int, listener: int) -> Any:  # noqa: ANN401 -- torch's own
    """Return a store that listens at a socket of ours."""
    make = partial(
        dist.TCPStore,
        ADDRESS,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=START_S),
        multi_tenant=True,
        master_listen_fd=listener,
    )
    try:
        return make()
    except NotImplementedError:
        # up to torch 2.6 only the older of its two servers takes a socket
        return make(use_libuv=False)


def _said_so_far() -> int:
    """Return how many bytes this process and its workers have printed: it goes to a file."""
    return os.fstat(2).st_size


class Launch:
    """The workers of one launch: their processes, and the supervisor over them."""

    def __init__(self, number: int, size: int) -> None:
        """Open the store that torchrun's agent and the workers will share.

        Raises OSError where this machine has no port or no descriptor for it.
        """
        import torch.distributed  # noqa: PLC0415 -- the main thread has imported it

        dist: Any = torch.distributed
        self.size = size
        self._said_before = _said_so_far()
        _probe()
        self.name = f"launch-{os.getpid()}-{number}"
        listener = socket.create_server((ADDRESS, 0), backlog=BACKLOG)
        self.port: int = listener.getsockname()[1]
        server = _server(dist, self.port, listener.detach())
        self._server: Any = server
        self.gate = os.pipe()
        self.beats = Beats.create(size)
        self._listener: Listener | None = None
        self._processes: dict[int, BaseProcess] = {}
        self._sharing: Sharing | None = None
        self._used_gpus = False
        self.ended = threading.Event()
        self.failure = ""
        self.supervisor = Supervisor(dist.PrefixStore(self.name, server), self.deaths, self.lost)

    def _said(self) -> str:
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
        """Wait for the workers. Raises LaunchError where one does not come up.

        It is a StartError where the machine lacks something, which it still will the next time.

        None of them may connect before the last one is forked: the store's server looks up the
        names of those who connect, and a fork in that moment inherits the resolver's lock for ever.
        """
        while len(active_children()) < self.size and not self.ended.is_set():
            time.sleep(FORK_LOOK_S)
        os.write(self.gate[1], b"." * self.size)
        try:
            came = self.supervisor.greet(self.size, START_S)
        except LaunchError as error:
            said = self._said()
            lack = lack_of(said) or lack_of(self.failure)
            if lack is None:
                raise
            message = f"a launch of {self.size} processes cannot start: {lack}"
            raise StartError(message, self.size) from error
        by_pid = {process.pid: process for process in active_children()}
        self._processes = {
            rank: by_pid[hello.pid] for rank, hello in came.items() if hello.pid in by_pid
        }
        self._listener = Listener(self.beats, {rank: hello.pid for rank, hello in came.items()})

    def deaths(self) -> dict[int, str]:
        """Return how the workers ended that ended otherwise than they were told to."""
        found: dict[int, str] = {}
        if self.ended.is_set():
            found = dict.fromkeys(self._processes or (0,), self.failure or "its launch ended")
        for rank, process in self._processes.items():
            code = process.exitcode
            if code:
                found[rank] = signal.Signals(-code).name if code < 0 else f"exit {code}"
        return found

    def lost(self, watch: Watch) -> dict[int, str]:
        """Return the workers of a scenario's world that do not run any more, in words."""
        if self._listener is None:
            return {}
        found = self._listener.lost(stopped_s=watch.stopped_s, silent_s=watch.silent_s)
        return {rank: how for rank, how in found.items() if rank < watch.world_size}

    def end(self) -> None:
        """End the workers, and wait until torchrun's agent has noticed."""
        for process in (*self._processes.values(), *active_children()):
            if process.pid is not None and process.exitcode is None:
                with suppress(ProcessLookupError):  # torchrun's agent came first and reaped it
                    os.kill(process.pid, signal.SIGKILL)
        self.ended.wait()
        # a store's server is ended here, not by whoever collects the garbage: a forked worker has
        # no such thread to join
        self.supervisor.close()
        self._server = None
        for descriptor in self.gate:
            os.close(descriptor)
        self.beats.close()
        # torchrun's agent leaves its pipes to the collector
        gc.collect()
