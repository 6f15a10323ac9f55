"""`Linear`: y = x W^T + b."""

from __future__ import annotations

from typing import Any

from torch_scenarios.modules.base import Array, Layer, Params, check_features, flat


class Linear(Layer, frozen=True, kw_only=True):
    """`torch.nn.Linear`; the weight is `[out_features, in_features]`.

    >>> layer = Linear(in_features=3, out_features=2)
    >>> layer.shapes(), layer.output_shape((5, 3))
    ({'weight': (2, 3), 'bias': (2,)}, (5, 2))

    The weight is the transpose of what one multiplies by: y = x W^T + b. So tensor parallelism
    splits W by rows where it splits the outputs (ColwiseParallel), and by columns where it splits
    the inputs.
    """

    name = "Linear"
    in_features: int
    out_features: int
    bias: bool = True

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The weight, and the bias unless it has none."""
        found: dict[str, tuple[int, ...]] = {"weight": (self.out_features, self.in_features)}
        return {**found, "bias": (self.out_features,)} if self.bias else found

    def forward(self, params: Params, x: Array) -> tuple[Array, Any]:
        """One matrix product."""
        y = x @ params["weight"].T
        return y + params["bias"] if self.bias else y, x

    def backward(self, params: Params, saved: Any, dy: Array) -> tuple[Array, dict[str, Array]]:
        """The chain rule: dW = dy^T x, db = sum of dy, dx = dy W."""
        rows = flat(dy)
        grads = {"weight": rows.T @ flat(saved)}
        if self.bias:
            grads["bias"] = rows.sum(axis=0)
        return dy @ params["weight"], grads

    def build(self, nn: Any) -> Any:
        """`torch.nn.Linear`."""
        return nn.Linear(self.in_features, self.out_features, bias=self.bias)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The last dimension becomes `out_features`."""
        check_features(shape, self.in_features, self.name)
        return (*shape[:-1], self.out_features)
