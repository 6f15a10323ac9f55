"""`ReLU`: what is negative becomes 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_scenarios.modules.base import Array, Layer, Params


class ReLU(Layer, frozen=True, kw_only=True):
    """`torch.nn.ReLU`; at 0 nothing flows back, as in torch.

    >>> y, saved = ReLU().forward({}, np.array([-1.0, 0.0, 2.0]))
    >>> ReLU().backward({}, saved, np.ones(3))[0]
    array([0., 0., 1.])
    """

    name = "ReLU"

    def forward(self, params: Params, x: Array) -> tuple[Array, Any]:
        """max(x, 0)."""
        return np.maximum(x, 0), ~(x <= 0)

    def backward(self, params: Params, saved: Any, dy: Array) -> tuple[Array, dict[str, Array]]:
        """Where the input was positive, or no number; elsewhere 0, whatever comes."""
        return np.where(saved, dy, dy.dtype.type(0)), {}

    def build(self, nn: Any) -> Any:
        """`torch.nn.ReLU`."""
        return nn.ReLU()
