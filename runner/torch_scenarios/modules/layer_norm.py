"""`LayerNorm`: each row at mean 0 and variance 1, then scaled and moved."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from torch_scenarios.modules.base import (
    Array,
    Layer,
    Params,
    check_features,
    flat,
    normalise,
    terms_of_normalised,
)


class LayerNorm(Layer, frozen=True, kw_only=True):
    """`torch.nn.LayerNorm` over the last dimension.

    >>> norm = LayerNorm(normalized_shape=2)
    >>> one = {"weight": np.ones(2), "bias": np.zeros(2)}
    >>> norm.forward(one, np.array([[1.0, 3.0]]))[0].round(3)
    array([[-1.,  1.]])

    Its input's gradient `cancels`: what comes back has the mean and what goes along the row taken
    out. Of a large gradient with little else in it only rounding is left, which is why the bound of
    such a gradient is that of its terms and not of their sum.
    """

    name = "LayerNorm"
    cancels: ClassVar[bool] = True
    normalized_shape: int
    eps: float = 1e-5

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """A factor and a term for each feature."""
        return {"weight": (self.normalized_shape,), "bias": (self.normalized_shape,)}

    def forward(self, params: Params, x: Array) -> tuple[Array, Any]:
        """Normalise, scale, move."""
        rows, factor = normalise(x, self.eps, centred=True)
        return rows * params["weight"] + params["bias"], (rows, factor)

    def backward(self, params: Params, saved: Any, dy: Array) -> tuple[Array, dict[str, Array]]:
        """Through the mean and the variance of the row as well."""
        rows, factor = saved
        grads = {"weight": flat(dy * rows).sum(axis=0), "bias": flat(dy).sum(axis=0)}
        scaled = dy * params["weight"]
        mean = scaled.mean(axis=-1, keepdims=True)
        along = (scaled * rows).mean(axis=-1, keepdims=True)
        return factor * (scaled - mean - rows * along), grads

    def terms(self, params: Params, saved: Any, size: Array) -> Array:
        """All three, as they are before they cancel."""
        return terms_of_normalised(size * np.abs(params["weight"]), saved, axes=-1)

    def build(self, nn: Any) -> Any:
        """`torch.nn.LayerNorm`."""
        return nn.LayerNorm(self.normalized_shape, eps=self.eps)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The same."""
        check_features(shape, self.normalized_shape, self.name)
        return shape
