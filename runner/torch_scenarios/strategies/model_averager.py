"""`PeriodicModelAverager`: every rank trains by itself, and every few steps weights are averaged.

What it calls (torch 2.13): after the optimizer's step, where it is its turn, one all_reduce of the
weights that have a gradient, flattened and divided by the number of ranks before they are summed
(`torch/distributed/algorithms/model_averaging/averagers.py` and `utils.py`).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from torch_scenarios.modules.base import Array
from torch_scenarios.operations.base import Caller
from torch_scenarios.strategies.alone import SingleRank
from torch_scenarios.strategies.data_parallel import DataParallel
from torch_scenarios.strategies.model import Arrays, Calls, Model, Strategy
from torch_scenarios.strategies.trainee import sum_over

AVERAGERS = "torch.distributed.algorithms.model_averaging.averagers"


class PeriodicModelAverager(Strategy, frozen=True, kw_only=True):
    """`averagers.PeriodicModelAverager`, called behind each step of the optimizer."""

    name = "PeriodicModelAverager"
    imports = (AVERAGERS,)
    period: int
    warmup_steps: int = 0
    process_group: str | None = None

    @staticmethod
    def read_warmup_steps(given: Any) -> int:
        """Return the number of steps before the first average. Raises ValueError."""
        if type(given) is not int or given < 0:
            message = "it is a number of steps, 0 or more"
            raise ValueError(message)
        return given

    @property
    def where(self) -> str | None:
        """Its process group."""
        return self.process_group

    def turn(self, step: int) -> bool:
        """Return whether weights are averaged behind a step; the first is 0."""
        return step >= self.warmup_steps and (step - self.warmup_steps) % self.period == 0

    def apply(self, real: Any) -> None:
        """Average behind each step."""
        averager = import_module(AVERAGERS).PeriodicModelAverager(
            period=self.period,
            warmup_steps=self.warmup_steps,
            process_group=None if self.process_group is None else real.handle(self.where),
        )
        real.behind_step = lambda: averager.average_parameters(real.module.parameters())


class Averages:
    """The averages of one rank: it counts the steps of its model.

        period 4, warmup_steps 2      steps 2, 6, 10, ... average; every other step sends nothing

    Ranks that count other steps average at other times, and the first one waits.
    """

    def __init__(self, model: Model, caller: Caller) -> None:
        """Begin with no step."""
        self._averager: PeriodicModelAverager = model.strategy(PeriodicModelAverager)
        self._group = caller.group(self._averager.process_group)
        self._steps = 0

    def average(self, params: Arrays, grads: Arrays) -> Calls:
        """Average the weights that have a gradient, where it is the turn."""
        names = [name for name in params if name in grads]
        if self._averager.turn(self._steps) and names:
            flat = np.concatenate([params[name].reshape(-1) for name in names])
            mean = yield from sum_over(self._group, flat / flat.dtype.type(self._group.size))
            at = 0
            for name in names:
                size, shape = params[name].size, params[name].shape
                params[name] = mean[at : at + size].reshape(shape)
                at += size
        self._steps += 1


class ModelAveraged(SingleRank):
    """One rank of a model whose weights are averaged every few steps.

    Between two averages each rank trains by itself, so that there is no process which has the same:
    weights are compared where they are averaged.
    """

    def __init__(self, model: Model, caller: Caller) -> None:
        """Begin with no step."""
        super().__init__(model, caller)
        self._averages = Averages(model, caller)

    def comparable_grad(self, name: str) -> Array | None:
        """Return nothing: gradients are those of the rank's own rows."""
        return None

    def update(self) -> Calls:
        """Step, and average."""
        yield from super().update()
        yield from self._averages.average(self.params, self.grads)


class DataParallelAveraged(DataParallel):
    """One rank of a model under DistributedDataParallel whose weights are averaged as well.

    It is for a hook that leaves gradients those of some ranks: `post_localSGD_hook`.
    """

    def __init__(self, model: Model, caller: Caller) -> None:
        """Begin with no step."""
        super().__init__(model, caller)
        self._averages = Averages(model, caller)

    def update(self) -> Calls:
        """Step, and average."""
        yield from super().update()
        yield from self._averages.average(self.params, self.grads)
