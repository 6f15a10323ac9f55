"""What a checkpoint of a trained model holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from torch_scenarios.strategies.model import Arrays, Model
from torch_scenarios.strategies.one_process import Oracle


class Checkpoint(Struct, frozen=True, kw_only=True):
    """What a checkpoint holds: whole weights, the optimizer's state of each, and one process's.

    It is whole no matter how it was cut when it was saved: four ranks may load what two have
    written (`torch.distributed.checkpoint`, resharding). With it goes the oracle, so that a model
    that is loaded is held against the process that was saved.
    """

    model: Model
    weights: Arrays
    states: Mapping[str, Mapping[str, Any]]
    trained: Oracle

    @staticmethod
    def of(model: Model, pieces: Sequence[Mapping[str, Any]]) -> Checkpoint:
        """Join what each rank wrote; of replicas the first rank's counts."""
        shapes = model.network.shapes()
        found = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        states: dict[str, dict[str, Any]] = {name: {} for name in shapes}
        for piece in reversed(pieces):
            for name, (index, local, state) in piece["parts"].items():
                found[name].reshape(-1)[index.reshape(-1)] = local.reshape(-1)
                for key, value in state.items():
                    if not hasattr(value, "shape"):
                        states[name][key] = value
                        continue
                    whole = states[name].setdefault(key, np.zeros(shapes[name], np.float32))
                    whole.reshape(-1)[index.reshape(-1)] = value.reshape(-1)
        trained = pieces[0]["trained"]
        return Checkpoint(model=model, weights=found, states=states, trained=trained)
