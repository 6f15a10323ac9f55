"""No strategy: every rank trains by itself."""

from __future__ import annotations

from collections.abc import Generator

from torch_scenarios.modules.base import Array
from torch_scenarios.operations.base import Part
from torch_scenarios.strategies.model import TrainStep
from torch_scenarios.strategies.trainee import Trainee


class Alone(Trainee):
    """A rank that computes all of what it is given, and tells no other rank."""

    def learn(self, order: TrainStep, x: Array, y: Array) -> Generator[Part, None, Array | None]:
        """Forward and backward, over the layers that it does not pass by."""
        self.know_loss(order, x, y)
        loss, found = yield from self.compute(self.params, order, x, y)
        self.add_gradients(found)
        return loss
