"""The near side of an execution: `Plan -> Trace`, observed. Never imports torch.

Entering a :class:`Launcher` starts the host, which imports torch while the caller still analyses.
One launcher takes many scenarios; workers stay warm between them.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from msgspec.structs import replace

from torch_scenarios.errors import LaunchError, StartError, UnsupportedError
from torch_scenarios.execution import backends, heartbeat
from torch_scenarios.execution.backends import (
    LaunchOptions,
    lack_of,
    require_fit,
    require_no_foreign_object,
)
from torch_scenarios.execution.channel import Channel
from torch_scenarios.execution.checkpoints import checkpoint_folder
from torch_scenarios.execution.heartbeat import BeatListener, Beats
from torch_scenarios.execution.protocol import Assignment, Job
from torch_scenarios.execution.supervisor import observe, replace_timeout, watch_for
from torch_scenarios.limits import RAISING
from torch_scenarios.model.needs import Lacks
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.trace import Trace
from torch_scenarios.model.traits import carrier

#: what workers find in their environment unless the user set it
ENVIRONMENT = {
    # torch looks up the name of each host that connects, which stalls a connection for 5 s where
    # DNS drops queries; everything here is on this machine, so that no name server need be asked
    "RES_OPTIONS": "timeout:1 attempts:0",
    # many ranks on few cores: no thread pool in each
    "OMP_NUM_THREADS": "1",
    # asking whether there is a GPU must not initialise CUDA in the process that workers fork from
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    **backends.ENVIRONMENT,
}
LOOPBACK = ("lo", "lo0")
#: seconds that a host which closed its line gets to end
ENDS_S = 5.0


class HostProcess(Protocol):
    """The process that torch is imported in: it leads a new session and process group.

    Its group is what is killed at the end, so that a worker which a worker has forked ends too.
    """

    @property
    def pid(self) -> int:
        """Its process id."""

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code once it ends. Raises subprocess.TimeoutExpired after `timeout` s."""


def start_host(
    descriptors: tuple[int, int, int], output: int, environment: Mapping[str, str]
) -> HostProcess:
    """Start a host, which keeps the descriptors; what it prints goes to `output`. Raises OSError.

    The descriptors are those of :mod:`torch_scenarios.worker.fork_server`: control, lifeline,
    beats.
    """
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "torch_scenarios.worker.fork_server", *map(str, descriptors)],
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        env=environment,
    )


class ProcessLauncher(ABC):
    """Runs plans on processes of its own, which stay warm between them. Use as a context manager.

    One at a time: a second thread may call `abandon` and `processes`, and nothing else.
    """

    def __init__(self, options: LaunchOptions | None = None) -> None:
        """Start nothing yet."""
        self._options = options or LaunchOptions()
        self._number = 0
        self._size = 1
        #: why no launch can start, and from which size on
        self._unable: StartError | None = None

    def __enter__(self) -> Self:
        """Start nothing: the first plan does."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End every process at once; there is nothing in them to save."""
        self._stop()

    @abstractmethod
    def _stop(self) -> None:
        """End every process, and close what led to them; the next plan starts new ones."""

    @property
    @abstractmethod
    def lacks(self) -> Lacks:
        """What of torch's semantics the processes may lack.

        Raises ScenarioError where a plugin declares what is not a capability.
        """

    @abstractmethod
    def processes(self) -> tuple[int, ...]:
        """Return the process ids behind this launcher now, sorted."""

    @abstractmethod
    def abandon(self, *, workers_only: bool = False) -> None:
        """End what runs now, from another thread: its `run` raises LaunchError, the next is whole.

        With `workers_only`, what took long to start stays where that is possible.
        """

    def reserve(self, world_size: int) -> None:
        """Say how many ranks a later scenario will need, so that one launch serves them all."""
        self._size = max(self._size, min(world_size, self._options.max_ranks))

    def run(self, plan: Plan, predicted: Trace) -> Trace:
        """Run one plan and return what was observed.

        Raises UnsupportedError where the backend cannot run this scenario, LaunchError where the
        environment could not. A launch that cannot start is not tried again: what needs one of its
        size raises StartError at once.
        """
        options = self._options
        if plan.world_size > options.max_ranks:
            message = (
                f"{plan.world_size} ranks are more than the {options.max_ranks} that may be "
                f"started; {RAISING['max_ranks']} raises the limit"
            )
            raise LaunchError(message)
        self._require(plan, predicted)
        self.reserve(plan.world_size)
        self._number += 1
        return self._run(plan, predicted)

    @abstractmethod
    def _require(self, plan: Plan, predicted: Trace) -> None:
        """Raise UnsupportedError for what can never run here; nothing starts for it."""

    @abstractmethod
    def _run(self, plan: Plan, predicted: Trace) -> Trace:
        """Run a plan, the `_number`th; raises as `run`."""


class Launcher(ProcessLauncher):
    """Runs plans on torch: on workers that are forked from one host, which has imported it.

        scenario run    ---- control (a socket) ---->  host: imports torch once
                                                         fork -> rank 0
                                                         fork -> rank 1       milliseconds each

    The host is another process than the command line, so that the analysis goes on while torch is
    imported, and so that nothing which torch does at a fork can reach the report.
    """

    def __init__(self, options: LaunchOptions | None = None) -> None:
        """Start nothing yet."""
        super().__init__(options)
        self._host: HostProcess | None = None
        self._control: Channel | None = None
        self._listener: BeatListener | None = None
        self._lifeline: int | None = None
        self._stderr = -1
        #: whether the host has ever answered
        self._answered = False
        #: what runs now was abandoned: that its processes did not come up says nothing
        self._abandoned = False

    def __enter__(self) -> Self:
        """Start the host, without waiting for it; where that fails, the first run says so."""
        with suppress(StartError):
            self._start()
        return self

    def _start(self) -> None:
        """Start the host. Raises StartError where the machine cannot."""
        self._answered = False
        try:
            self._start_host()
        except OSError as error:
            message = f"no launch can start: {lack_of(str(error)) or error}"
            self._unable = StartError(message)
            raise self._unable from error

    def _start_host(self) -> None:
        near, far = socket.socketpair()
        read_end, write_end = os.pipe()
        self._stderr = os.memfd_create("host")
        beats = Beats.create(1)
        descriptors = far.fileno(), read_end, beats.descriptor
        self._host = start_host(descriptors, self._stderr, environment())
        far.close()
        os.close(read_end)
        beats.close()
        self._listener = BeatListener(beats, {0: self._host.pid})
        self._control = Channel(near, self._hear)
        self._lifeline = write_end

    def _stop(self) -> None:
        host, self._host = self._host, None
        if host is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(host.pid, signal.SIGKILL)
        host.wait()
        if self._control is not None:
            self._control.close()
        if self._lifeline is not None:
            os.close(self._lifeline)
        os.close(self._stderr)

    def abandon(self, *, workers_only: bool = False) -> None:
        """End what runs now, from another thread: its `run` raises LaunchError, the next is whole.

        With `workers_only` the host stays: it tells that the workers died, and forks new ones at
        once, which is sooner than to import torch again.
        """
        host = self._host
        if host is None:
            return
        self._abandoned = True
        if workers_only:
            for pid in self.processes():
                if pid != host.pid:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        else:
            with suppress(ProcessLookupError):
                os.killpg(host.pid, signal.SIGKILL)

    def _hear(self) -> None:
        """End a host that does not run any more. Raises LaunchError where it does not."""
        assert self._listener is not None
        lost = self._listener.find_lost(stopped_s=heartbeat.STOPPED_S, silent_s=heartbeat.SILENT_S)
        if lost:
            self._stop()
            message = f"the process that holds the workers was given up: {lost[0]}"
            raise LaunchError(message)

    def _read_error(self) -> str:
        size = os.fstat(self._stderr).st_size
        tail = os.pread(self._stderr, 2000, max(0, size - 2000)).decode(errors="replace")
        return tail.strip().splitlines()[-1] if tail.strip() else "it said nothing"

    def processes(self) -> tuple[int, ...]:
        """Return the process ids that stand behind this launcher now: the host, then its workers.

        Read from /proc; empty where there is none.
        """
        if self._host is None:
            return ()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ValueError):
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(after_name[2]) == self._host.pid and after_name[0] != "Z":
                    found.append(int(entry.name))
        return tuple(sorted(found))

    @property
    def lacks(self) -> Lacks:
        """What the plugins declare that they lack, and what the backends may lack that it comes to.

        Raises ScenarioError where a plugin declares what is not a capability.
        """
        return self._options.lacks(eventual(self._options.backend))

    def _require(self, plan: Plan, predicted: Trace) -> None:
        if self._options.backend != "auto":
            needs = () if predicted.needs is None else predicted.needs.words
            require_fit(self._options.backend.lower(), plan, needs)
        require_no_foreign_object(plan, predicted, eventual(self._options.backend) or ("gloo",))

    def _run(self, plan: Plan, predicted: Trace) -> Trace:
        options = self._options
        self._abandoned = False
        if options.timeout_s is not None:
            plan = replace_timeout(plan, options.timeout_s)
        order = Assignment(
            number=self._number,
            plan=plan,
            backend=options.backend,
            plugins=options.plugins,
            share_gpu=options.share_gpu,
            needs=() if predicted.needs is None else predicted.needs.words,
        )
        with checkpoint_folder(plan) as folder:
            job = self._make_job(replace(order, folder=folder), predicted)
            return observe(plan, self._answer(job, plan.world_size), predicted)

    def _make_job(self, order: Assignment, predicted: Trace) -> Job:
        options, plan = self._options, order.plan
        confirm, most_s = options.confirm, options.max_seconds
        return Job(
            order=order,
            watch=watch_for(plan, predicted, confirm=confirm, max_seconds=most_s),
            own={
                name: watch_for(plan, predicted, confirm=confirm, backend=name, max_seconds=most_s)
                for name in eventual(options.backend)
                if predicted.on(name) is not predicted
            },
            size=plan.world_size if options.isolate else self._size,
            fresh=options.isolate,
        )

    def _answer(self, job: Job, least: int) -> Any:
        """Return the findings on a job, by a launch of its size or, where that cannot start, less.

        `least` is how many processes the job itself needs.
        """
        if self._unable is not None and job.size >= self._unable.size > least:
            self._size, job = least, replace(job, size=least)
        if self._unable is not None and job.size >= self._unable.size:
            raise self._unable
        try:
            return self._ask(job)
        except StartError as error:
            if self._abandoned:
                raise LaunchError(str(error)) from error
            self._unable = error
            if error.size <= least:
                raise
        return self._answer(job, least)

    def _ask(self, job: Job) -> Any:
        if self._host is None or self._host.poll() is not None:
            self._stop()
            self._start()
        control = self._control
        assert control is not None
        asked_s = time.monotonic()
        try:
            control.send(pickle.dumps(job, protocol=5))
            answer = pickle.loads(control.receive())  # noqa: S301 -- from our own host
        except (EOFError, OSError) as error:
            raise self._explain_end() from error
        self._answered = True
        if isinstance(answer, LaunchError | UnsupportedError):
            raise answer
        return replace(answer, ready_s=max(0.0, time.monotonic() - asked_s - answer.busy_s))

    def _explain_end(self) -> LaunchError:
        """Return why the host ended, and clear up after it.

        One that ended by itself before it ever answered would do so again.
        """
        host = self._host
        assert host is not None
        with suppress(subprocess.TimeoutExpired):
            host.wait(ENDS_S)
        code, said = host.poll(), self._read_error()
        self._stop()
        if self._answered or code is None or code < 0:
            how = f" ({signal.Signals(-code).name})" if code is not None and code < 0 else ""
            return LaunchError(
                f"the process that holds the workers ({host.pid}) ended{how}: {said}"
            )
        return StartError(f"no launch can start: {lack_of(said) or said}")


class NoLauncher:
    """In the place of a launcher where nothing can run: each case is UNSUPPORTED.

    >>> with NoLauncher("torch is not installed") as launcher:
    ...     launcher.run(None, None)
    Traceback (most recent call last):
        ...
    torch_scenarios.errors.UnsupportedError: torch is not installed
    """

    def __init__(self, reason: str) -> None:
        """Say `reason` of each case."""
        self._reason = reason

    def __enter__(self) -> Self:
        """Start nothing."""
        return self

    def __exit__(self, *_: object) -> None:
        """End nothing."""

    def run(self, plan: Plan, predicted: Trace) -> Trace:
        """Raise UnsupportedError."""
        raise UnsupportedError(self._reason)


def eventual(backend: str) -> tuple[str, ...]:
    """Return whose forecasts are needed: of the backend, or of NCCL where `auto` may come to it."""
    if backend != "auto":
        return (carrier(backend),)
    return ("nccl",) if backends.may_be_here() else ()


def environment() -> dict[str, str]:
    """Return the environment of the host and its workers."""
    own = {**ENVIRONMENT, **backends.make_environment(os.environ)}
    # the host must find this very package, also where it is not installed
    path = [*own.get("PYTHONPATH", "").split(os.pathsep), str(Path(__file__).parents[2])]
    own["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    keep_to_loopback(own)
    return own


def keep_to_loopback(environment: MutableMapping[str, str]) -> None:
    """Let Gloo listen where no other host reaches it, unless the user names an interface."""
    names = {name for _, name in socket.if_nameindex()}
    loopback = next((name for name in LOOPBACK if name in names), None)
    if loopback is not None:
        environment.setdefault("GLOO_SOCKET_IFNAME", loopback)
