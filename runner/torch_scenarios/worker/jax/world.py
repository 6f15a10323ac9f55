"""The process groups of one scenario on one rank, as meshes of JAX's devices."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from torch_scenarios.model.plan import Plan
from torch_scenarios.vocabulary import WORLD
from torch_scenarios.worker import device
from torch_scenarios.worker.framework import BROKEN, group
from torch_scenarios.worker.jax import calls
from torch_scenarios.worker.rank import FrameworkWorld

#: seconds that calls get to come back in, once the rank has taken its last step
SETTLE_S = 0.5
#: in torch's place: its tensors are NumPy's arrays, its calls are JAX's
ON_JAX: Any = SimpleNamespace(Tensor=np.ndarray, distributed=calls)


class JaxWorld(FrameworkWorld):
    """The meshes of one scenario, by the names that an author uses.

    Making one takes no message: a mesh is known to a process by its devices. Ranks that disagree on
    a group go on, where torch's would wait in `new_group`, and differ in the first call on it.
    """

    def __init__(self, plan: Plan, rank: int) -> None:
        """Know nothing yet; :meth:`begin` makes the world."""
        super().__init__(ON_JAX, plan, rank, SimpleNamespace(type="cpu"))

    def begin(self, number: int) -> None:
        """Name the ranks of this scenario: a mesh is a value, and no rank waits for another."""
        BROKEN.clear()
        calls.forget_groups()
        made = calls.make_group(range(self.plan.world_size))
        group.WORLD = made
        self._keep(WORLD, made)

    def split(self, parts: Sequence[Sequence[int]]) -> Any:
        """Return what this rank holds of groups of parts of the world."""
        own = next((part for part in parts if self.rank in part), None)
        return self.outside if own is None else calls.make_group(own)

    def finish(self) -> None:
        """Wait a little for calls under way: one that stays would meet the next scenario's."""
        deadline_s = time.monotonic() + SETTLE_S
        self.spoilt = device.wait(calls.is_idle, deadline_s=deadline_s) != "happened"

    def free(self) -> bool:
        """Forget the groups; False where a call on one of them never came back."""
        self.forget()
        group.WORLD = None
        return calls.is_idle()
