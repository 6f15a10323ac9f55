"""The process groups of one scenario on one rank, as communicators of MPI."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from mpi4py import MPI

from torch_scenarios.model.plan import Creation, Plan
from torch_scenarios.vocabulary import WORLD
from torch_scenarios.worker.mpi import calls
from torch_scenarios.worker.world import World

#: in torch's place: its tensors are NumPy's arrays, its calls are MPI's
ON_MPI: Any = SimpleNamespace(Tensor=np.ndarray, distributed=calls)


class MpiWorld(World):
    """The communicators of one scenario, by the names that an author uses."""

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
        calls.Hanging.broken.clear()
        calls.group.WORLD = made
        self._keep(WORLD, made)

    def new_subgroups(self, creation: Creation) -> None:
        """Split the world into groups of equal size."""
        self._split(creation.spec.name, creation)

    def new_subgroups_by_enumeration(self, creation: Creation) -> None:
        """Split the world into the parts of a partition."""
        self._split(creation.spec.name, creation)

    def init_device_mesh(self, creation: Creation) -> None:
        """Split the world along each dimension of a mesh."""
        spec = creation.spec
        for dim in spec.dims:
            self._split(f"{spec.name}.{dim}", creation)

    def _split(self, name: str, creation: Creation) -> None:
        parts = [group.ranks for group in creation.groups if group.name == name]
        self._keep(name, calls.split(parts))

    def poison(self) -> None:
        """Break off what waits, from another thread."""
        calls.Hanging.broken.set()

    def free(self) -> bool:
        """Free the communicators; False where something is still under way on one of them.

        To free one is a collective call (MPI 4.1, 7.4.3), which MPICH and Open MPI carry out
        without waiting for the other ranks.
        """
        if calls.Hanging.left:
            return False
        for handle in reversed(self._made):
            if handle.comm != MPI.COMM_NULL:
                handle.comm.Free()
        self.forget()
        calls.group.WORLD = None
        return True
