"""`Sequential` and `Residual`: layers one after the other, by their labels."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
from msgspec.structs import replace

from torch_scenarios.errors import DataError
from torch_scenarios.modules.base import Array, Layer, Params, Weighed, inner, prefix_names


class Sequential(Layer, frozen=True, kw_only=True, dict=True):
    """`torch.nn.Sequential`: parameters are named `label.weight`.

    >>> from torch_scenarios.modules.linear import Linear
    >>> from torch_scenarios.modules.relu import ReLU
    >>> up = Linear(in_features=4, out_features=8)
    >>> net = Sequential(layers=(("up", up), ("act", ReLU())))
    >>> net.shapes()
    {'up.weight': (8, 4), 'up.bias': (8,)}
    >>> net.output_shape((3, 4)), [label for label, _ in net.without(("up",)).layers]
    ((3, 8), ['act'])

    `ready` is the order in which a backward has gradients, the last layer's first: it decides which
    of them DistributedDataParallel puts into one bucket, and so what it sends when.
    """

    name = "Sequential"
    layers: tuple[tuple[str, Layer], ...]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Those of the layers, below their labels."""
        return self._shapes

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        # each backward of each rank asks for the names, and a layer never changes
        return {
            f"{label}.{name}": shape
            for label, layer in self.layers
            for name, shape in layer.shapes().items()
        }

    def buffers(self) -> dict[str, Array]:
        """Those of the layers, below their labels."""
        return {
            f"{label}.{name}": value
            for label, layer in self.layers
            for name, value in layer.buffers().items()
        }

    def update_buffers(self, buffers: Params, saved: Any) -> dict[str, Array]:
        """Each layer keeps its own; a layer that is not here keeps what it has."""
        found = dict(buffers)
        for (label, layer), kept in zip(self.layers, saved, strict=True):
            own = layer.update_buffers(inner(buffers, label), kept)
            found |= {f"{label}.{name}": value for name, value in own.items()}
        return found

    def leaves(self) -> Iterator[tuple[str, Layer]]:
        """Yield every layer that has no layers inside, by its full label: `block.norm`."""
        for label, layer in self.layers:
            if isinstance(layer, Sequential):
                yield from ((f"{label}.{inside}", leaf) for inside, leaf in layer.leaves())
            else:
                yield label, layer

    def ready(self) -> tuple[str, ...]:
        """The last layer's come first."""
        return tuple(
            f"{label}.{name}" for label, layer in reversed(self.layers) for name in layer.ready()
        )

    def forward(self, params: Params, x: Array) -> tuple[Array, Any]:
        """Layer after layer."""
        saved = []
        for label, layer in self.layers:
            x, kept = layer.forward(inner(params, label), x)
            saved.append(kept)
        return x, saved

    def backward(self, params: Params, saved: Any, dy: Array) -> tuple[Array, dict[str, Array]]:
        """From the last layer to the first."""
        grads: dict[str, Array] = {}
        for (label, layer), kept in zip(reversed(self.layers), reversed(saved), strict=True):
            dy, found = layer.backward(inner(params, label), kept, dy)
            grads |= prefix_names(label, found)
        return dy, {name: grads[name] for name in self.shapes() if name in grads}

    def weigh(self, params: Params, saved: Any, dy: Array, size: Array | None = None) -> Weighed:
        """From the last layer to the first."""
        grads: dict[str, Array] = {}
        sizes: dict[str, Array] = {}
        for (label, layer), kept in zip(reversed(self.layers), reversed(saved), strict=True):
            dy, found, weights, size = layer.weigh(inner(params, label), kept, dy, size)
            grads |= prefix_names(label, found)
            sizes |= prefix_names(label, weights)
        return dy, {name: grads[name] for name in self.shapes() if name in grads}, sizes, size

    def build(self, nn: Any) -> Any:
        """`torch.nn.Sequential` with the labels as names."""
        return nn.Sequential(OrderedDict((label, each.build(nn)) for label, each in self.layers))

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """What the last layer makes of it."""
        for _, layer in self.layers:
            shape = layer.output_shape(shape)
        return shape

    def only(self, labels: tuple[str, ...]) -> Sequential:
        """Return the layers of these labels, in their order."""
        return Sequential(layers=tuple(each for each in self.layers if each[0] in labels))

    def without(self, labels: tuple[str, ...]) -> Sequential:
        """Return the layers but those of these labels: a rank that passes them by."""
        return replace(self, layers=tuple(each for each in self.layers if each[0] not in labels))


class LowPrecision(Sequential, frozen=True, kw_only=True):
    """Layers in a dtype that is coarser than float32: what passes from one to the next is in it.

    Arrays stay float32 with values of that dtype, since kernels add up in float32.

    >>> coarse(np.array([1.0, 1.003], np.float32), "bfloat16")
    array([1., 1.], dtype=float32)

    Mixed precision of FSDP computes like this: the weights are kept in float32 and rounded for each
    forward. A bfloat16 has 8 bits of precision, so that 1.003 is 1.
    """

    dtype: str

    def round(self, value: Array) -> Array:
        """Return an array with values of the dtype."""
        return coarse(value, self.dtype)

    def forward(self, params: Params, x: Array) -> tuple[Array, Any]:
        """Layer after layer, rounded behind each."""
        saved = []
        x = self.round(x)
        params = {name: self.round(value) for name, value in params.items()}
        for label, layer in self.layers:
            x, kept = layer.forward(inner(params, label), x)
            x = self.round(x)
            saved.append(kept)
        return x, (params, saved)

    def backward(self, params: Params, saved: Any, dy: Array) -> tuple[Array, dict[str, Array]]:
        """From the last layer to the first, with the weights of the forward."""
        params, kept = saved
        grads: dict[str, Array] = {}
        dy = self.round(dy)
        for (label, layer), each in zip(reversed(self.layers), reversed(kept), strict=True):
            dy, found = layer.backward(inner(params, label), each, dy)
            dy = self.round(dy)
            grads |= prefix_names(label, {name: self.round(value) for name, value in found.items()})
        return dy, {name: grads[name] for name in self.shapes() if name in grads}


def coarse(value: Array, dtype: str) -> Array:
    """Return an array with values of a dtype, in its own; integers stay what they are.

    >>> coarse(np.array([2], np.int64), "bfloat16")
    array([2])
    """
    if value.dtype.kind != "f" or dtype == "float32":
        return value
    return value.astype(getattr(ml_dtypes, dtype, dtype)).astype(value.dtype)


class Residual(Sequential, frozen=True, kw_only=True):
    """What its layers make of the input, and the input itself: y = x + f(x).

    >>> from torch_scenarios.modules.relu import ReLU
    >>> block = Residual(layers=(("act", ReLU()),))
    >>> y, saved = block.forward({}, np.array([-1.0, 2.0]))
    >>> y, block.backward({}, saved, np.ones(2))[0]
    (array([-1.,  4.]), array([1., 2.]))
    """

    name = "Residual"

    def forward(self, params: Params, x: Array) -> tuple[Array, Any]:
        """The input is added."""
        y, saved = Sequential.forward(self, params, x)
        return x + y, saved

    def backward(self, params: Params, saved: Any, dy: Array) -> tuple[Array, dict[str, Array]]:
        """It flows back both ways."""
        dx, grads = Sequential.backward(self, params, saved, dy)
        return dx + dy, grads

    def weigh(self, params: Params, saved: Any, dy: Array, size: Array | None = None) -> Weighed:
        """It flows back both ways."""
        dx, grads, sizes, more = Sequential.weigh(self, params, saved, dy, size)
        if size is None and more is None:
            return dx + dy, grads, sizes, None
        size, more = (
            np.abs(given) if most is None else most for given, most in ((dy, size), (dx, more))
        )
        return dx + dy, grads, sizes, size + more

    def build(self, nn: Any) -> Any:
        """A `torch.nn.Sequential` whose forward adds its input."""
        listed = OrderedDict((label, each.build(nn)) for label, each in self.layers)

        class Added(nn.Sequential):  # type: ignore[misc]
            def forward(self, given: Any) -> Any:
                return given + super().forward(given)

        return Added(listed)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The input's own. DataError where the layers change it."""
        made = Sequential.output_shape(self, shape)
        if made != shape:
            message = f"a Residual adds its input of {list(shape)} to {list(made)}"
            raise DataError(message)
        return shape
