"""`RMSNorm`: each row at mean square 1, then scaled."""

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


class RMSNorm(Layer, frozen=True, kw_only=True):
    """`torch.nn.RMSNorm` over the last dimension.

    It takes no mean away: a row is divided by the root of the mean of its squares.

    >>> norm = RMSNorm(normalized_shape=2)
    >>> norm.forward({"weight": np.ones(2)}, np.array([[3.0, 3.0]]))[0].round(3)
    array([[1., 1.]])
    """

    name = "RMSNorm"
    cancels: ClassVar[bool] = True
    normalized_shape: int
    #: torch's own where none is stated: the spacing of float32 at 1
    eps: float = 2.0**-23

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """A factor for each feature."""
        return {"weight": (self.normalized_shape,)}

    def forward(self, params: Params, x: Array) -> tuple[Array, Any]:
        """Normalise and scale."""
        rows, factor = normalise(x, self.eps, centred=False)
        return rows * params["weight"], (rows, factor)

    def backward(self, params: Params, saved: Any, dy: Array) -> tuple[Array, dict[str, Array]]:
        """Through the mean square of the row as well."""
        rows, factor = saved
        scaled = dy * params["weight"]
        along = (scaled * rows).mean(axis=-1, keepdims=True)
        return factor * (scaled - rows * along), {"weight": flat(dy * rows).sum(axis=0)}

    def terms(self, params: Params, saved: Any, size: Array) -> Array:
        """All three, as they are before they cancel."""
        return terms_of_normalised(size * np.abs(params["weight"]), saved, axes=-1)

    def build(self, nn: Any) -> Any:
        """`torch.nn.RMSNorm`."""
        return nn.RMSNorm(self.normalized_shape, eps=self.eps)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The same."""
        check_features(shape, self.normalized_shape, self.name)
        return shape
