"""The host: the process that torch is imported in once, and that every worker is forked from.

`python -m runner.execution.host CONTROL LIFELINE` is started by :mod:`runner.execution.launcher`
and by nobody else. Its main thread runs torchrun's agent, one launch after the other; a second
thread supervises: it takes jobs from the control socket and answers them. When the lifeline closes,
however its other end died, the host takes its whole process group with it.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import signal
import sys
import threading
import time
from dataclasses import replace
from multiprocessing import active_children
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from runner.execution.backends import resolve
from runner.execution.supervisor import Supervisor
from runner.problems import LaunchError, UnsupportedError

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from runner.execution.orders import Job

#: seconds that workers get to come up
START_S = 60.0
#: seconds between two looks of torchrun's agent at its workers
AGENT_LOOK_S = 0.05
#: seconds between two looks whether all workers are forked
FORK_LOOK_S = 0.002


class Launch:
    """The workers of one launch: their processes, and the supervisor over them."""

    def __init__(self, number: int, size: int) -> None:
        """Open the store that torchrun's agent and the workers will share."""
        import torch.distributed  # noqa: PLC0415 -- the main thread has imported it

        dist: Any = torch.distributed
        self.size = size
        self.name = f"launch-{os.getpid()}-{number}"
        server = dist.TCPStore(
            ADDRESS, 0, is_master=True, wait_for_workers=False, multi_tenant=True
        )
        self.port = server.port
        self._server: Any = server
        self.gate = os.pipe()
        self._processes: dict[int, BaseProcess] = {}
        self.ended = threading.Event()
        self.failure = ""
        self.supervisor = Supervisor(dist.PrefixStore(self.name, server), self.deaths)

    def meet(self) -> None:
        """Wait for the workers.

        None of them may connect before the last one is forked: the store's server looks up the
        names of those who connect, and a fork in that moment inherits the resolver's lock for ever.
        """
        while len(active_children()) < self.size and not self.ended.is_set():
            time.sleep(FORK_LOOK_S)
        os.write(self.gate[1], b"." * self.size)
        came = self.supervisor.greet(self.size, START_S)
        by_pid = {process.pid: process for process in active_children()}
        self._processes = {
            rank: by_pid[hello.pid] for rank, hello in came.items() if hello.pid in by_pid
        }

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

    def end(self) -> None:
        """End the workers, and wait until torchrun's agent has noticed."""
        for process in self._processes.values():
            if process.pid is not None and process.exitcode is None:
                os.kill(process.pid, signal.SIGKILL)
        for process in active_children():
            if process.pid is not None and process.exitcode is None:
                os.kill(process.pid, signal.SIGKILL)
        self.ended.wait()
        # a store's server is ended here, not by whoever collects the garbage: a forked worker has
        # no such thread to join
        self.supervisor.close()
        self._server = None
        for descriptor in self.gate:
            os.close(descriptor)


#: torch's stores resolve names of peers; this one is in every hosts file
ADDRESS = "localhost"


class Host:
    """Serves jobs; the launches themselves are run by the main thread."""

    def __init__(self, control: Connection, lifeline: int) -> None:
        """Take jobs from `control`."""
        self._control = control
        self._lifeline = lifeline
        self._wanted: queue.SimpleQueue[Launch | None] = queue.SimpleQueue()
        self._launch: Launch | None = None
        self._launches = 0
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
        self._ready.set()
        while (launch := self._wanted.get()) is not None:
            try:
                self._run_agent(launch)
            except Exception as error:  # noqa: BLE001 -- whatever ends a launch is told to its jobs
                launch.failure = _told(error)
            finally:
                launch.ended.set()

    def _run_agent(self, launch: Launch) -> None:
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch  # noqa: PLC0415

        from runner.execution.silence import NoLogs  # noqa: PLC0415 -- torch's own base class
        from runner.worker import serve_launch  # noqa: PLC0415 -- imports torch

        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=launch.size,
            run_id=launch.name,
            rdzv_backend="static",
            rdzv_endpoint=f"{ADDRESS}:{launch.port}",
            rdzv_configs={"rank": 0, "timeout": int(START_S)},
            max_restarts=0,
            monitor_interval=AGENT_LOOK_S,
            start_method="fork",
            logs_specs=NoLogs(),
        )
        closed = (self._control.fileno(), launch.gate[1])
        elastic_launch(config, serve_launch)(launch.name, launch.gate[0], self._lifeline, closed)

    # ------------------------------------------------------------------ the serving thread

    def _serve(self) -> None:
        while True:
            try:
                job = self._control.recv()
            except EOFError:
                os.killpg(os.getpgrp(), signal.SIGKILL)
            try:
                answer: Any = self._do(job)
            except (LaunchError, UnsupportedError) as error:
                answer = error
            except Exception as error:  # noqa: BLE001 -- the near side must not wait for ever
                self._give_up()
                answer = LaunchError(f"{type(error).__name__}: {error}")
            self._control.send_bytes(pickle.dumps(answer, protocol=5))
            if self._launch is not None and not self._launch.supervisor.settled():
                self._give_up()

    def _do(self, job: Job) -> Any:  # noqa: ANN401 -- Findings
        self._ready.wait()
        import torch  # noqa: PLC0415 -- the main thread has imported it

        order = job.order
        backend = resolve(torch, order.backend, order.plan.scenario, share_gpu=order.share_gpu)
        order = replace(order, backend=backend)
        launch = self._launch
        if launch is not None and (
            job.fresh or launch.ended.is_set() or launch.size < job.size or launch.deaths()
        ):
            self._give_up()
            launch = None
        if launch is None:
            launch = self._begin(job.size)
        findings = launch.supervisor.run(order, job.watch)
        if not findings.usable:
            self._give_up()
        return replace(findings, environment={"torch": torch.__version__, "backend": backend})

    def _begin(self, size: int) -> Launch:
        self._launches += 1
        launch = Launch(self._launches, size)
        self._wanted.put(launch)
        self._launch = launch
        try:
            launch.meet()
        except LaunchError:
            self._give_up()
            raise
        return launch

    def _give_up(self) -> None:
        launch, self._launch = self._launch, None
        if launch is not None:
            launch.end()


def _told(error: Exception) -> str:
    """Return in a line why a launch ended: the worker that failed, or the agent's own words."""
    failures = getattr(error, "failures", None)
    if failures:
        rank, failure = next(iter(sorted(failures.items())))
        return f"worker {rank}: exit code {failure.exitcode}"
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]


def main() -> None:
    """Serve until the near side is gone."""
    control, lifeline = Connection(int(sys.argv[1])), int(sys.argv[2])
    logging.disable(logging.CRITICAL)
    host = Host(control, lifeline)
    host.start()
    import torch.distributed.launcher.api  # noqa: PLC0415 -- after the threads: it takes a second

    import runner.worker  # noqa: F401, PLC0415 -- workers are forked with everything imported

    assert torch  # noqa: S101 -- imported for its effect
    host.run()


if __name__ == "__main__":
    main()
