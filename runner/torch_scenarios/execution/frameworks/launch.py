"""What the launchers of the frameworks next to torch have in common: `Plan -> Trace`, observed.

A launch starts as many ranks as the largest scenario has, and takes one scenario after the other:

    launcher === local store (unix socket) === rank 0 .. n === the framework === each other

The ranks are judged by the same supervisor as torch's. Where a rank cannot be freed from the call
that holds it, or a process ended, the next scenario gets new ones.
"""

from __future__ import annotations

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace

from torch_scenarios.errors import LaunchError, StartError, UnsupportedError
from torch_scenarios.execution import heartbeat
from torch_scenarios.execution.backends import LaunchOptions, require_fit
from torch_scenarios.execution.launcher import ProcessLauncher
from torch_scenarios.execution.letters import Secret
from torch_scenarios.execution.local_store import LocalStore, LocalStoreAddress
from torch_scenarios.execution.protocol import Assignment, Supervision, WorkerReady
from torch_scenarios.execution.supervisor import Supervisor, observe, watch_for
from torch_scenarios.model.needs import Lacks
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.scenario import steps_of
from torch_scenarios.model.trace import Trace
from torch_scenarios.operations.base import Compound, RemoteCall

#: what a rank finds in its environment: the local store's name, and the key of the launch
OFFICE = "SCENARIO_RANK_OFFICE"
#: and the file of the memory in which it shows that it runs
BEATS = "SCENARIO_RANK_BEATS"
#: seconds that the ranks get to come up
START_S = 60.0
#: seconds that a process whose ranks were ended gets to notice
ENDS_S = 5.0
#: bytes of what the processes printed that are looked at
PRINTED = 4000


def find_local_store(around: MutableMapping[str, str]) -> LocalStoreAddress:
    """Return where the launcher's local store is, and take it out of a rank's environment."""
    name, _, key = around.pop(OFFICE).partition(":")
    return LocalStoreAddress(name=bytes.fromhex(name), key=bytes.fromhex(key))


def require_words(plan: Plan, predicted: Trace, framework: str, why_died: str) -> None:
    """Raise UnsupportedError where a program takes a step that is torch's own.

    `framework` is its name; `why_died` says why a process of it cannot end.
    """
    scenario = plan.scenario
    if scenario.models:
        message = f"it trains a model, and {framework} has no word for that: it is torch's own"
        raise UnsupportedError(message)
    if scenario.debug != "off":
        message = (
            f"`debug` is a setting of torch's (TORCH_DISTRIBUTED_DEBUG), which {framework} lacks"
        )
        raise UnsupportedError(message)
    refused = next((each.refused for each in plan.creations if each.refused), None)
    if refused is not None:
        message = f"torch refuses groups of it ({refused}), and {framework} is not asked for them"
        raise UnsupportedError(message)
    if any(rank.ending == "died" for rank in predicted.ranks):
        message = f"a process of it ends, and {why_died}"
        raise UnsupportedError(message)
    for step in steps_of(scenario.steps):
        if isinstance(step.operation, Compound | RemoteCall):
            message = f"`{step.operation.name}` is torch's own, and {framework} has no word for it"
            raise UnsupportedError(message)


class FrameworkLaunch(ABC):
    """The ranks of one launch, and what starts them.

        JAX   one process for each rank, started here
        MPI   one mpiexec, which starts the ranks

    Both find the local store by their environment, and are ranks of the same protocol from then on.
    """

    def __init__(self, size: int) -> None:
        """Start the ranks, and wait for them. Raises StartError where they do not come up."""
        self.size = size
        self._ranks: Mapping[int, WorkerReady] = {}
        self._processes: Sequence[subprocess.Popen[bytes]] = ()
        self._output = os.memfd_create("ranks")
        self._local_store = LocalStore(Secret.random())
        self._local_store.start()
        self._beats = heartbeat.Beats.create(size)
        self._listener: heartbeat.BeatListener | None = None
        self.supervisor = Supervisor(self._local_store, self._find_deaths, self._find_lost)
        try:
            self._start()
            self._ranks = self.supervisor.greet(size, START_S)
            pids = {rank: hello.pid for rank, hello in self._ranks.items()}
            self._listener = heartbeat.BeatListener(self._beats, pids)
        except StartError:
            self.end()
            raise
        except (OSError, LaunchError) as error:
            printed = self._read_output()
            self.end()
            message = (
                f"a launch of {size} ranks on {self.framework} cannot start: {error}: {printed}"
            )
            raise StartError(message, size) from error

    #: the framework's name, in words
    framework: ClassVar[str]

    @abstractmethod
    def _start(self) -> None:
        """Start the processes, by :meth:`_open`."""

    @abstractmethod
    def _find_deaths(self) -> dict[int, str]:
        """Return how ranks ended that did."""

    def _open(self, command: Sequence[str], more: Mapping[str, str]) -> None:
        """Start one process; it finds `more` in its environment."""
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
            env={**self._environment(), **more},
        )
        self._processes = (*self._processes, process)

    def _environment(self) -> dict[str, str]:
        address = self._local_store.address
        path = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(Path(__file__).parents[3])]
        return {
            "OMP_NUM_THREADS": "1",
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            OFFICE: f"{address.name.hex()}:{address.key.hex()}",
            BEATS: f"/proc/{os.getpid()}/fd/{self._beats.descriptor}",
        }

    @property
    def versions(self) -> Mapping[str, str]:
        """What the ranks run on."""
        return self._ranks[0].versions

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes: what was started, and the ranks."""
        started = (process.pid for process in self._processes)
        return tuple({*started, *(hello.pid for hello in self._ranks.values())})

    def _find_lost(self, watch: Supervision) -> Mapping[int, str]:
        """Return the ranks whose processes do not run, each with what is wrong."""
        if self._listener is None:
            return {}
        return self._listener.find_lost(stopped_s=watch.stopped_s, silent_s=watch.silent_s)

    def _read_output(self) -> str:
        size = os.fstat(self._output).st_size
        tail = (
            os.pread(self._output, PRINTED, max(0, size - PRINTED)).decode(errors="replace").strip()
        )
        return tail.splitlines()[-1] if tail else "it printed nothing"

    def end(self) -> None:
        """End every process at once; there is nothing in them to save."""
        ranks = [hello.pid for hello in self._ranks.values()]
        for pid in ranks:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDS_S if ranks else 0.0)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.supervisor.close()
        self._local_store.close()
        self._beats.close()
        os.close(self._output)


def tell_end(code: int) -> str:
    """Return how a process ended, in words."""
    return signal.Signals(-code).name if code < 0 else f"exit {code}"


class FrameworkLauncher(ProcessLauncher):
    """Runs plans on ranks of a framework next to torch.

    A scenario is one statement for all frameworks. What one has no word for is UNSUPPORTED there,
    and is known before a process starts.
    """

    #: whose section of `expect` holds, and what a result calls it
    carrier: ClassVar[str]
    launch: ClassVar[type[FrameworkLaunch]]

    def __init__(self, options: LaunchOptions | None = None) -> None:
        """Start nothing yet."""
        super().__init__(options)
        self._launch: FrameworkLaunch | None = None

    def _stop(self) -> None:
        launch, self._launch = self._launch, None
        if launch is not None:
            launch.end()

    @property
    def lacks(self) -> Lacks:
        """What of torch's semantics the framework has no word for."""
        return Lacks(backends=(self.carrier,))

    def processes(self) -> tuple[int, ...]:
        """Return the process ids of the launch, sorted."""
        return () if self._launch is None else tuple(sorted(self._launch.pids))

    def abandon(self, *, workers_only: bool = False) -> None:
        """End what runs now: all of it in either case."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _require(self, plan: Plan, predicted: Trace) -> None:
        needs = () if predicted.needs is None else predicted.needs.words
        require_fit(self.carrier, plan, needs)

    def _run(self, plan: Plan, predicted: Trace) -> Trace:
        options, launch = self._options, self._find_launch(plan.world_size)
        order = Assignment(number=self._number, plan=plan, backend=self.carrier)
        watch = watch_for(
            plan,
            predicted,
            confirm=options.confirm,
            backend=self.carrier,
            max_seconds=options.max_seconds,
        )
        findings = launch.supervisor.run(order, watch)
        facts = {"backend": self.carrier, **launch.versions}
        if not findings.usable or options.isolate or not launch.supervisor.settle():
            self._stop()
        return observe(plan, replace(findings, environment=facts), predicted)

    def _find_launch(self, size: int) -> FrameworkLaunch:
        """Return the launch, of at least `size` ranks. Raises StartError."""
        if self._unable is not None and self._unable.size <= size:
            raise self._unable
        if self._launch is not None and self._launch.size < size:
            self._stop()
        if self._launch is None:
            try:
                self._launch = self.launch(max(size, self._size))
            except StartError as error:
                self._unable = error
                raise
        return self._launch
