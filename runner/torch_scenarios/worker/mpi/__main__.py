"""One rank of a run on MPI: `mpiexec -n 4 python -m torch_scenarios.worker.mpi`.

:class:`torch_scenarios.execution.mpi.MpiLauncher` starts it, and no other process. It takes orders
from the launcher's office, one scenario after the other, and says there what it saw.
"""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import mpi4py
from mpi4py import MPI

from torch_scenarios.execution import protocol
from torch_scenarios.execution.heartbeat import Beats
from torch_scenarios.execution.mpi import BEATS, CARRIER, find_office
from torch_scenarios.execution.office import OfficeLine
from torch_scenarios.expressions.functions import NumpyArrays
from torch_scenarios.worker import watcher
from torch_scenarios.worker.board import Board
from torch_scenarios.worker.device import WithTheCall
from torch_scenarios.worker.mpi.world import MpiWorld
from torch_scenarios.worker.program import Broken, Program
from torch_scenarios.worker.world import Start

#: communicators that a process may leave to MPI before another one takes its place: MPICH has some
#: two thousand context ids
MOST_LEFT = 300
#: seconds for which a rank that has come to its end keeps MPI going, as MPI_Finalize would
FINISH_S = 1.0
#: seconds between two looks for the next order while it does
LOOK_S = 0.01
#: exit code of a rank whose launcher is gone
ALONE = 3


class Rank:
    """One rank of a launch, from its first scenario to its last."""

    def __init__(self, connect: Callable[[], OfficeLine]) -> None:
        """Connect to the office: for orders, for the thread next to this one, and to hear its end.

        Raises RuntimeError where it is gone.
        """
        store, beside, self._lifeline = connect(), connect(), connect()
        self._store = store
        self._beside = beside
        self.rank = MPI.COMM_WORLD.Get_rank()
        self._watcher = watcher.Watcher(
            beside, self.rank, lifeline=self._lifeline.descriptor, alone=_leave, told=lambda: None
        )
        self._stderr = watcher.StandardError()
        self._turn = 0
        self._left = 0
        self._world: MpiWorld | None = None

    def serve(self) -> None:
        """Take orders until told to stop. Raises RuntimeError where the office is gone."""
        warnings.simplefilter("ignore")
        self._watcher.listen()
        hello = protocol.Hello(
            rank=self.rank, pid=os.getpid(), host=socket.gethostname(), versions=versions()
        )
        protocol.Outbox(self._store, "mail").post(hello)
        while (number := self._next()) != protocol.STOP:
            letter = protocol.fetch(self._store, f"order/{number}", keep=True)
            self._obey(protocol.open_parts(letter, protocol.Assignment))

    def _next(self) -> int:
        """Wait for the number of the next scenario, and let MPI do what is under way meanwhile."""
        self._turn += 1
        key = f"turn/{self.rank}/{self._turn}"
        for _ in range(int(FINISH_S / LOOK_S)):
            if protocol.arrives(self._store, key, LOOK_S):
                break
            MPI.COMM_WORLD.Iprobe()
        return int(protocol.await_key(self._store, key))

    def _obey(self, order: protocol.Assignment) -> None:
        name, plan = order.place, order.plan
        self._stderr.clear()
        mail = protocol.Outbox(self._store, f"{name}/mail")
        start = Start(self._store, name, 1, plan.world_size)
        if self._world is not None and not self._world.free():
            self._left += 1
        self._world = world = MpiWorld(plan, self.rank)
        world.spoilt = self._left > MOST_LEFT
        try:
            world.begin(order.number)
        except MPI.Exception as error:
            mail.post(protocol.Unable(rank=self.rank, reason=f"MPI: {error}"))
            return
        board = Board(self.rank, lambda value: value)
        running = watcher.Running(
            self._beside, name, board, backend=CARRIER, world=world, cut=lambda: None
        )
        program = Program(
            plan,
            world,
            NumpyArrays(),
            board=board,
            completion=WithTheCall(),
            broken=lambda: running.broken or protocol.holds(self._store, running.key("break")),
        )
        self._watcher.begin(running)
        self._run(program, running, mail, start)

    def _run(
        self,
        program: Program,
        running: watcher.Running,
        mail: protocol.Outbox,
        start: Start,
    ) -> None:
        """Run a program to its end, no matter which that is."""
        try:
            ending = program.prepare()
            if ending is None:
                start.meet()
                ending = program.run()
            else:
                start.arrive()
        except Broken:
            ending = "blocked"
            program.pending.clear()
        running.came_back()
        running.tell(ending, via=mail)
        if running.broken:
            running.free(mail)


def versions() -> dict[str, str]:
    """Return what the ranks run on, for the results."""
    library = MPI.Get_library_version().replace("\0", "").splitlines()[0].partition(",")[0]
    words = " ".join(library.replace("Version:", "").split())
    return {"MPI": words, "mpi4py": mpi4py.__version__}


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


def _leave(_reason: str) -> NoReturn:
    """End a rank whose launcher is gone."""
    os._exit(ALONE)


def main() -> None:
    """Serve until the launcher is gone."""
    watcher.die_with_parent()
    connect = partial(OfficeLine, find_office(os.environ))
    shared = os.dup(2)
    try:
        Beats(os.open(os.environ.pop(BEATS), os.O_RDWR)).keep(MPI.COMM_WORLD.Get_rank())
        drop_shared_memory()
        Rank(connect).serve()
    except Exception as error:
        os.write(shared, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
