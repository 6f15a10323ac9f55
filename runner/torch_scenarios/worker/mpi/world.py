"""The process groups of one scenario on one rank, as communicators of MPI."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from mpi4py import MPI

from torch_scenarios.model.plan import Plan
from torch_scenarios.vocabulary import WORLD
from torch_scenarios.worker.framework import BROKEN, group
from torch_scenarios.worker.mpi import calls
from torch_scenarios.worker.rank import FrameworkWorld

#: in torch's place: its tensors are NumPy's arrays, its calls are MPI's
ON_MPI: Any = SimpleNamespace(Tensor=np.ndarray, distributed=calls)


class MpiWorld(FrameworkWorld):
    """The communicators of one scenario, by the names that an author uses.

    A group is made by its members (`MPI_Comm_create_group`) or by all (`MPI_Comm_create`), as
    torch's `use_local_synchronization` and its plain `new_group` are.
    """

    def __init__(self, plan: Plan, rank: int) -> None:
        """Know nothing yet; :meth:`begin` makes the world."""
        super().__init__(ON_MPI, plan, rank, SimpleNamespace(type="cpu"))

    def begin(self, number: int) -> None:
        """Make a communicator of the ranks of this scenario, in which no older message is.

        `number` tells the scenario from the others of the launch.
        """
        ranks = range(self.plan.world_size)
        chosen = MPI.COMM_WORLD.Get_group().Incl(list(ranks))
        most = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767
        made = calls.Communicator(MPI.COMM_WORLD.Create_group(chosen, number % most), ranks)
        BROKEN.clear()
        group.WORLD = made
        self._keep(WORLD, made)

    def split(self, parts: Sequence[Sequence[int]]) -> Any:
        """Return what this rank holds of groups of parts of the world."""
        return calls.split(parts)

    def free(self) -> bool:
        """Free the communicators; False where something is still under way on one of them.

        To free one is a collective call (MPI 4.1, 7.4.3), which MPICH and Open MPI carry out
        without waiting for the other ranks.
        """
        if calls.LEFT:
            return False
        for handle in reversed(self._made):
            if handle.comm != MPI.COMM_NULL:
                handle.comm.Free()
        self.forget()
        group.WORLD = None
        return True
