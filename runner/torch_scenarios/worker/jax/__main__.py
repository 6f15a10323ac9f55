"""One rank of a run on JAX: `python -m torch_scenarios.worker.jax`, a process for each."""

from __future__ import annotations

import os

import jax
import jaxlib

from torch_scenarios.execution.frameworks.jax import CARRIER, PLACE
from torch_scenarios.model.plan import Plan
from torch_scenarios.worker import watcher
from torch_scenarios.worker.jax import calls
from torch_scenarios.worker.jax.world import JaxWorld
from torch_scenarios.worker.rank import Framework, serve


class Jax(Framework):
    """JAX's distributed runtime, as the ranks of a launch share it."""

    carrier = CARRIER
    #: what a world leaves under way stays in JAX's thread, and the next call would meet it
    most_left = 0
    errors = jax.errors.JaxRuntimeError

    def join(self) -> int:
        """Connect this process to the others of the launch."""
        rank, size, address = os.environ.pop(PLACE).split(" ")
        calls.connect(int(rank), int(size), address)
        return int(rank)

    def find_versions(self) -> dict[str, str]:
        """Return which JAX this is."""
        return {"JAX": jax.__version__, "jaxlib": jaxlib.__version__}

    def progress(self) -> None:
        """Do nothing: JAX's own threads do what is under way."""

    def make_world(self, plan: Plan, rank: int) -> JaxWorld:
        """Return the meshes of a scenario."""
        return JaxWorld(plan, rank)


if __name__ == "__main__":
    watcher.die_with_parent()
    serve(Jax())
