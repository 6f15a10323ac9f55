"""`Tanh`."""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_scenarios.modules.base import Array, Layer, Params


class Tanh(Layer, frozen=True, kw_only=True):
    """`torch.nn.Tanh`.

    >>> y, saved = Tanh().forward({}, np.array([0.0]))
    >>> y, Tanh().backward({}, saved, np.ones(1))[0]
    (array([0.]), array([1.]))

    Its output is all that the backward needs, so that its input may be written over.
    """

    name = "Tanh"

    def forward(self, params: Params, x: Array) -> tuple[Array, Any]:
        """Hyperbolic tangent."""
        y = np.tanh(x)
        return y, y

    def backward(self, params: Params, saved: Any, dy: Array) -> tuple[Array, dict[str, Array]]:
        """1 - y^2."""
        return dy * (1 - saved * saved), {}

    def build(self, nn: Any) -> Any:
        """`torch.nn.Tanh`."""
        return nn.Tanh()
