"""One rank of a run on MPI: `mpiexec -n 4 python -m torch_scenarios.worker.mpi`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import mpi4py
from mpi4py import MPI

from torch_scenarios.execution.frameworks.mpi import CARRIER
from torch_scenarios.model.plan import Plan
from torch_scenarios.worker import watcher
from torch_scenarios.worker.mpi.world import MpiWorld
from torch_scenarios.worker.rank import Framework, serve


class Mpi(Framework):
    """MPI, as the ranks of a launch share it."""

    carrier = CARRIER
    #: communicators: MPICH has some two thousand context ids
    most_left = 300
    errors = MPI.Exception

    def join(self) -> int:
        """Return the rank of this process: MPI has connected it as it was imported."""
        drop_shared_memory()
        return MPI.COMM_WORLD.Get_rank()

    def find_versions(self) -> dict[str, str]:
        """Return which MPI this is, and which mpi4py."""
        library = MPI.Get_library_version().replace("\0", "").splitlines()[0].partition(",")[0]
        words = " ".join(library.replace("Version:", "").split())
        return {"MPI": words, "mpi4py": mpi4py.__version__}

    def progress(self) -> None:
        """Let MPI do what is under way, as MPI_Finalize would."""
        MPI.COMM_WORLD.Iprobe()

    def make_world(self, plan: Plan, rank: int) -> MpiWorld:
        """Return the communicators of a scenario."""
        return MpiWorld(plan, rank)


def drop_shared_memory() -> None:
    """Take away the names of the memory that MPI's processes share: none outlives them then.

    Each process has it by now, and keeps it without a name.
    """
    MPI.COMM_WORLD.Barrier()
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.partition("/dev/shm/")[2]
        if path and " (deleted)" not in path:
            with suppress(OSError):
                Path("/dev/shm", path).unlink()


if __name__ == "__main__":
    watcher.die_with_parent()
    serve(Mpi())
