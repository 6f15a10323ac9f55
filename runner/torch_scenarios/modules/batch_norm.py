"""`BatchNorm1d`: each feature at mean 0 and variance 1 over the batch, then scaled and moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from torch_scenarios.errors import DataError
from torch_scenarios.modules.base import Array, Layer, Params, terms_of_normalised


class BatchNorm1d(Layer, frozen=True, kw_only=True):
    """`torch.nn.BatchNorm1d` in training: of `[rows, features]`, or `[rows, features, length]`.

    What it keeps of the batches are buffers: no optimizer changes them, and no gradient.

    It is the layer that data parallelism changes: the statistics are those of a rank's own rows.
    Two ranks with the rows [0, 2] and [10, 12] normalise each to -1 and 1; one process with all
    four does not. DistributedDataParallel averages gradients and not statistics, so that the
    program is `not_equivalent`. Its buffers are sent from rank 0 before each forward
    (`broadcast_buffers`).

    >>> norm = BatchNorm1d(num_features=1)
    >>> params = {"weight": np.ones(1), "bias": np.zeros(1)}
    >>> for rows in ([[0.0], [2.0]], [[10.0], [12.0]]):
    ...     print(norm.forward(params, np.array(rows))[0].round(3).ravel())
    [-1.  1.]
    [-1.  1.]
    """

    name = "BatchNorm1d"
    over_batch: ClassVar[bool] = True
    cancels: ClassVar[bool] = True
    num_features: int
    eps: float = 1e-5
    momentum: float = 0.1

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """A factor and a term for each feature."""
        return {"weight": (self.num_features,), "bias": (self.num_features,)}

    def buffers(self) -> dict[str, Array]:
        """The mean and the variance of the batches so far, and how many there were."""
        return {
            "running_mean": np.zeros(self.num_features, np.float32),
            "running_var": np.ones(self.num_features, np.float32),
            "num_batches_tracked": np.zeros((), np.int64),
        }

    def forward(self, params: Params, x: Array) -> tuple[Array, Any]:
        """Normalise, scale, move."""
        axes = tuple(axis for axis in range(x.ndim) if axis != 1)
        mean = x.mean(axis=axes, keepdims=True, dtype=x.dtype)
        centred = x - mean
        variance = (centred * centred).mean(axis=axes, keepdims=True, dtype=x.dtype)
        factor = 1 / np.sqrt(variance + x.dtype.type(self.eps))
        rows = centred * factor
        y = rows * self._spread_features(params["weight"], x) + self._spread_features(
            params["bias"], x
        )
        return y, (rows, factor, mean.reshape(-1), variance.reshape(-1))

    def update_buffers(self, buffers: Mapping[str, Array], saved: Any) -> dict[str, Array]:
        """The new mean and variance count `momentum`; the variance is that of a sample."""
        rows, _, mean, variance = saved
        count = rows.size // self.num_features
        found = {"running_mean": mean, "running_var": variance * count / max(count - 1, 1)}
        kept = {
            name: (1 - self.momentum) * buffers[name] + self.momentum * value
            for name, value in found.items()
        }
        kept = {name: value.astype(buffers[name].dtype) for name, value in kept.items()}
        return {**kept, "num_batches_tracked": buffers["num_batches_tracked"] + 1}

    def backward(self, params: Params, saved: Any, dy: Array) -> tuple[Array, dict[str, Array]]:
        """Through the mean and the variance of the batch as well."""
        rows, factor, _, _ = saved
        axes = tuple(axis for axis in range(dy.ndim) if axis != 1)
        grads = {"weight": (dy * rows).sum(axis=axes), "bias": dy.sum(axis=axes)}
        scaled = dy * self._spread_features(params["weight"], dy)
        mean = scaled.mean(axis=axes, keepdims=True)
        along = (scaled * rows).mean(axis=axes, keepdims=True)
        return factor * (scaled - mean - rows * along), grads

    def terms(self, params: Params, saved: Any, size: Array) -> Array:
        """All three, as they are before they cancel."""
        axes = tuple(axis for axis in range(size.ndim) if axis != 1)
        return terms_of_normalised(
            size * self._spread_features(np.abs(params["weight"]), size), saved, axes
        )

    @staticmethod
    def _spread_features(value: Array, x: Array) -> Array:
        """Return one value a feature as it lies along dimension 1."""
        return value.reshape(1, -1, *(1 for _ in range(x.ndim - 2)))

    def build(self, nn: Any) -> Any:
        """`torch.nn.BatchNorm1d`."""
        return nn.BatchNorm1d(self.num_features, eps=self.eps, momentum=self.momentum)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The same."""
        if len(shape) not in {2, 3} or shape[1] != self.num_features:
            message = (
                f"{self.name} takes [rows, {self.num_features}], and gets an input of {list(shape)}"
            )
            raise DataError(message)
        if shape[0] * int(np.prod(shape[2:])) == 1:
            message = f"{self.name} wants two values a feature or more, and gets {list(shape)}"
            raise DataError(message)
        return shape


class SyncBatchNorm(BatchNorm1d, frozen=True, kw_only=True):
    """`torch.nn.SyncBatchNorm`: statistics over the batches of all ranks, on GPUs alone.

    >>> SyncBatchNorm(num_features=1).lacking
    'SyncBatchNorm: DistributedDataParallel has it on GPUs alone'
    """

    name = "SyncBatchNorm"
    lacking: ClassVar[str | None] = "SyncBatchNorm: DistributedDataParallel has it on GPUs alone"
