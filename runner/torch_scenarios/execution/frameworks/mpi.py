"""MPI itself: one `mpiexec` starts the ranks, and ends them all when one has ended."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from torch_scenarios.errors import StartError
from torch_scenarios.execution.frameworks.launch import (
    FrameworkLaunch,
    FrameworkLauncher,
    require_words,
    tell_end,
)
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.trace import Trace

#: whose section of `expect` holds, and what a result calls it
CARRIER = "mpi"
#: Open MPI starts no rank for root, and no more ranks than cores, unless it is told to
ALLOWED = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def find_mpiexec() -> str:
    """Return the mpiexec of this environment, or of the path. Raises StartError without one."""
    own = Path(sys.executable).with_name("mpiexec")
    found = str(own) if own.exists() else shutil.which("mpiexec")
    lack = "there is no `mpiexec`" if found is None else ""
    if find_spec("mpi4py") is None:
        lack = "mpi4py is not installed"
    if found is None or lack:
        message = f"no rank can start on MPI: {lack} (`pip install mpi4py mpich` has both)"
        raise StartError(message)
    return found


class MpiLaunch(FrameworkLaunch):
    """One `mpiexec` and its ranks.

    When one rank ends, mpiexec ends all others: no call of theirs can raise that it lost its peer.
    """

    framework = "MPI"

    def _start(self) -> None:
        command = [find_mpiexec(), "-n", str(self.size), sys.executable, "-P", "-m"]
        self._open([*command, "torch_scenarios.worker.mpi"], {})

    def _environment(self) -> dict[str, str]:
        return {**ALLOWED, **super()._environment()}

    def _find_deaths(self) -> dict[int, str]:
        """Return how the ranks ended: with mpiexec, which ends them all when one has ended."""
        code = self._processes[0].poll()
        return {} if code is None else dict.fromkeys(range(self.size), tell_end(code))


class MpiLauncher(FrameworkLauncher):
    """Runs plans on ranks of MPI, which one `mpiexec` starts.

    MPI is the standard that torch's semantics come from, so that a program which no torch is needed
    for can be asked of an implementation with a document of its own.
    """

    carrier = CARRIER
    launch = MpiLaunch

    def _require(self, plan: Plan, predicted: Trace) -> None:
        super()._require(plan, predicted)
        why_died = "`mpiexec` ends all others then: no call loses a peer"
        require_words(plan, predicted, "MPI", why_died)
