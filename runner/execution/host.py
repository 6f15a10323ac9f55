"""The host: the process that torch is imported in once, and that every worker is forked from.

`python -m runner.execution.host CONTROL LIFELINE BEATS` is started by
:mod:`runner.execution.launcher` and by nobody else. Its main thread runs torchrun's agent, one
launch after the other; a second thread supervises: it takes jobs from the control socket and
answers them; a third beats, so that the near side knows a host that is stopped from one that works.
When the lifeline closes, however its other end died, the host takes its process group with it.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runner.execution.backends import carrier, device_type, resolve
from runner.execution.channel import Channel
from runner.execution.errors import lack_of
from runner.execution.heartbeat import Beats
from runner.execution.launch import ADDRESS, START_S, Launch
from runner.problems import LaunchError, StartError, UnsupportedError

if TYPE_CHECKING:
    from runner.execution.orders import Job

#: seconds between two looks of torchrun's agent at its workers
AGENT_LOOK_S = 0.05


class Host:
    """Serves jobs; the launches themselves are run by the main thread."""

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

        from runner.execution.silence import no_logs  # noqa: PLC0415 -- used here only
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
            logs_specs=no_logs(),
        )
        closed = (self._descriptor, launch.gate[1])
        elastic_launch(config, serve_launch)(
            launch.name, launch.gate[0], self._lifeline, launch.beats, closed
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
            # the near side reads the end of the line, and waits for nobody
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

    def _do(self, job: Job) -> Any:  # noqa: ANN401 -- Findings
        self._ready.wait()
        import torch  # noqa: PLC0415 -- the main thread has imported it

        order = job.order
        choice = resolve(
            torch,
            order.backend,
            order.plan.scenario,
            share_gpu=order.share_gpu,
            here=max(job.size, 0 if job.fresh or not self._launch else self._launch.size),
        )
        order = replace(order, backend=choice.backend, sharing=choice.sharing)
        launch = self._launch
        if launch is not None and (
            job.fresh
            or launch.size < job.size
            or launch.deaths()
            or not launch.suits(choice.sharing)
        ):
            self._give_up()
            launch = None
        if launch is None:
            launch = self._begin_at_last(job.size)
        launch.takes(choice.sharing, on_gpus=device_type(choice.backend) != "cpu")
        watch = job.own.get(carrier(choice.backend), job.watch)
        findings = launch.supervisor.run(order, watch)
        if findings.unbegun:
            # it may have been killed before this scenario came, which is not to pay for that
            self._give_up()
            launch = self._begin_at_last(job.size)
            launch.takes(choice.sharing, on_gpus=device_type(choice.backend) != "cpu")
            findings = launch.supervisor.run(order, watch)
        self._spoilt = not findings.usable
        return replace(
            findings, environment=choice.environment, notes=(*choice.notes, *findings.notes)
        )

    def _prepare(self, job: Job) -> None:
        """Make ready for the next scenario while the near side judges this one."""
        launch = self._launch
        if launch is None:
            return
        try:
            usable = not self._spoilt and launch.supervisor.settled()
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
            message = f"no launch can start: {lack_of(str(error)) or error}"
            raise StartError(message) from error
        self._wanted.put(launch)
        self._launch = launch
        try:
            launch.meet()
        except LaunchError:
            self._give_up()
            raise
        return launch

    def _give_up(self) -> None:
        self._spoilt = False
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
    control, lifeline, beats = (int(argument) for argument in sys.argv[1:])
    logging.disable(logging.CRITICAL)
    host = Host(socket.socket(fileno=control), lifeline)
    host.start()
    import torch.distributed.launcher.api  # noqa: PLC0415 -- after the threads: it takes a second

    import runner.worker  # noqa: F401, PLC0415 -- workers are forked with everything imported

    assert torch  # noqa: S101 -- imported for its effect
    # not before: what is imported may hold the interpreter's lock for as long as a disk takes
    Beats(beats).keep(0)
    host.run()


if __name__ == "__main__":
    main()
