"""No strategy: every rank trains by itself."""

from __future__ import annotations

from collections.abc import Generator

from torch_scenarios.modules.base import Array
from torch_scenarios.operations.base import Part
from torch_scenarios.strategies.model import TrainStep
from torch_scenarios.strategies.trainee import Trainee


class SingleRank(Trainee):
    """A rank that computes all of what it is given, and sends nothing.

    It is what a model without `parallel:` is on each rank. With the same rows everywhere it is what
    one process has; with each rank's own rows it is the commonest mistake of all, a script that was
    started on several ranks and never wrapped its model: each rank trains a model of its own.
    """

    def learn(self, order: TrainStep, x: Array, y: Array) -> Generator[Part, None, Array | None]:
        """Forward and backward, over the layers that it does not pass by."""
        self.know_loss(order, x, y)
        loss, found = yield from self.compute(self.params, order, x, y)
        self.add_gradients(found)
        return loss
