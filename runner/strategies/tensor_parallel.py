"""`parallelize_module`: the features of a layer are cut over ranks that take the same input.

A column-wise Linear makes some features of its output, from the whole input; a row-wise one takes
some features of its input, and the partial outputs are summed. What is said (torch 2.13, measured):
the row-wise output's all_reduce, and in the backward that of the column-wise input's gradient,
where something before it has to learn. The bias of a row-wise layer is whole, and added once.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from runner.modules.base import Array, flat, inner
from runner.modules.linear import Linear
from runner.modules.sequential import Sequential
from runner.operations.base import Group, Part
from runner.operations.placement import (
    REPLICATE,
    Layout,
    Moving,
    Placement,
    chunks,
    partial_of,
    placement_of,
    redistributed,
    shard,
)
from runner.strategies.alone import Alone
from runner.strategies.base import Arrays, Strategy, TrainStep, sliced, unknown_label
from runner.strategies.fully_shard import FullySharded

COLUMN, ROW = "ColwiseParallel", "RowwiseParallel"
LAYOUTS = ("input_layouts", "output_layouts")
LAST = shard(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How one layer is cut, and how its input and output lie."""

    kind: str
    input: Placement
    output: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelizeModule(Strategy):
    """`torch.distributed.tensor.parallel.parallelize_module`."""

    name = "parallelize_module"
    imports = ("torch.distributed.tensor.parallel",)
    device_mesh: str
    parallelize_plan: Mapping[str, Style] = field(default_factory=dict)

    @staticmethod
    def read_parallelize_plan(given: Any) -> dict[str, Style]:
        """Return the styles of layers, by their labels. Raises ValueError."""
        if not isinstance(given, dict) or not given:
            message = "a mapping from labels is wanted: `{up: ColwiseParallel}`"
            raise ValueError(message)
        return {label: _style(label, style) for label, style in given.items()}

    @property
    def where(self) -> str | None:
        """Its mesh."""
        return self.device_mesh

    def misfit(self, network: Sequential) -> str | None:
        """The layers that it cuts are Linear."""
        unknown = unknown_label(network, self.parallelize_plan)
        if unknown is not None:
            return unknown
        layers = dict(network.layers)
        other = next((each for each in self.parallelize_plan if not _is_linear(layers[each])), None)
        return None if other is None else f"`{other}` is not a Linear: only these are cut here"

    def apply(self, real: Any) -> None:
        """Let torch cut the layers."""
        parallel = real.torch.distributed.tensor.parallel
        tensor = real.torch.distributed.tensor

        def made(placement: Placement) -> Any:
            return tensor.Shard(placement.dim) if placement.is_shard else tensor.Replicate()

        plan = {
            label: getattr(parallel, style.kind)(
                input_layouts=made(style.input), output_layouts=made(style.output)
            )
            for label, style in self.parallelize_plan.items()
        }
        parallel.parallelize_module(real.module, real.mesh(self.device_mesh), plan)


def _is_linear(layer: Any) -> bool:
    return isinstance(layer, Linear)


def _style(label: str, given: Any) -> Style:
    kind, layouts = (given, {}) if isinstance(given, str) else next(iter(dict(given).items()))
    if kind not in (COLUMN, ROW):
        message = f"`{label}` is cut by {COLUMN} or {ROW}, not by `{kind}`"
        raise ValueError(message)
    stranger = next((each for each in layouts or {} if each not in LAYOUTS), None)
    if stranger is not None:
        message = f"{kind} has no `{stranger}` here: it takes {' and '.join(LAYOUTS)}"
        raise ValueError(message)
    defaults = (REPLICATE, LAST) if kind == COLUMN else (LAST, REPLICATE)
    read = {name: placement_of(str(value)) for name, value in (layouts or {}).items()}
    found = Style(
        kind=kind,
        input=read.get("input_layouts", defaults[0]),
        output=read.get("output_layouts", defaults[1]),
    )
    for each in (found.input, found.output):
        if each not in (REPLICATE, LAST):
            message = f"`{label}`: {each} is not known here; Replicate() and Shard(-1) are"
            raise ValueError(message)
    return found


class TensorParallel(Alone):
    """One rank of a model under `parallelize_module`."""

    def settle(self) -> None:
        """Find the group, and how each parameter is cut."""
        super().settle()
        said: ParallelizeModule = self.model.strategy(ParallelizeModule)
        self._plan = said.parallelize_plan
        self._tp: Group = self.caller.mesh(said.device_mesh)[-1]
        self._at = self._tp.group_rank(self.rank)

    def share(self, name: str, whole: Array) -> Array:
        """Return the rank's features: of the output, or of the input."""
        label, _, kind = name.partition(".")
        style = self._plan.get(label)
        if style is None or (style.kind == ROW and kind == "bias"):
            return whole
        axis = 0 if style.kind == COLUMN else 1
        return sliced(whole, chunks(whole.shape[axis], self._tp.size), self._at, axis)

    def refused(self, given: Any) -> str | None:
        """Refuse features that do not divide: torch takes local outputs for even shards."""
        layers = dict(self.model.network.layers)
        for label, style in self._plan.items():
            layer: Any = layers[label]
            count = layer.out_features if style.kind == COLUMN else layer.in_features
            if count % self._tp.size:
                return f"the {count} features of `{label}` do not divide by {self._tp.size} ranks"
        return None

    def _moved(
        self, now: Placement, wanted: Placement, shape: tuple[int, ...], value: Array
    ) -> Moving:
        """Move an activation, or its gradient, of that whole shape."""
        last = len(shape) - 1
        layout = Layout(
            mesh="",
            groups=(self._tp,),
            placements=(shard(last) if now == LAST else now,),
            shape=shape,
            rank=self.rank,
        )
        return redistributed(layout, (shard(last) if wanted == LAST else wanted,), value)

    def compute(
        self, params: Arrays, order: TrainStep, x: Array, y: Array
    ) -> Generator[Part, None, tuple[Array, Arrays]]:
        """Go forward and backward, layer by layer."""
        saved: list[tuple[str, Any, Any, bool]] = []
        learns = False
        layers = self.model.network.without(order.skip).layers
        for label, layer in layers:
            own, style = inner(params, label), self._plan.get(label)
            before = learns
            learns = learns or bool(own)
            if style is None:
                x, kept = layer.forward(own, x)
            else:
                kept = yield from self._entered(style, x)
                x = yield from self._made(style, layer, own, kept)
            saved.append((label, layer, kept, before))
        loss, dy = self.model.loss.value(x, y)
        grads: Arrays = {}
        for label, layer, kept, before in reversed(saved):
            own, style = inner(params, label), self._plan.get(label)
            if style is None:
                dy, found = layer.backward(own, kept, dy)
            else:
                dy, found = yield from self._back(style, layer, own, kept, dy, asked=before)
            grads |= {f"{label}.{name}": value for name, value in found.items()}
        return loss, {name: grads[name] for name in params if name in grads}

    def _entered(self, style: Style, x: Array) -> Moving:
        """Bring the input to how the layer wants it."""
        wanted = REPLICATE if style.kind == COLUMN else LAST
        return self._moved(style.input, wanted, self._whole(style.input, x), x)

    def _whole(self, placement: Placement, local: Array) -> tuple[int, ...]:
        if placement != LAST:
            return local.shape
        return (*local.shape[:-1], local.shape[-1] * self._tp.size)

    def _made(
        self, style: Style, layer: Any, own: Mapping[str, Array], x: Array
    ) -> Generator[Part, None, Array]:
        product = x @ own["weight"].T
        if style.kind == COLUMN:
            y = product + own["bias"] if layer.bias else product
            shape = (*y.shape[:-1], layer.out_features)
            return (yield from self._moved(LAST, style.output, shape, y))
        y = yield from self._moved(partial_of("sum"), style.output, product.shape, product)
        if not layer.bias:
            return y
        bias = own["bias"] if style.output != LAST else self._features(own["bias"])
        return np.asarray(y + bias)

    def _features(self, value: Array) -> Array:
        return sliced(value, chunks(value.shape[-1], self._tp.size), self._at, value.ndim - 1)

    def _back(
        self,
        style: Style,
        layer: Any,
        own: Mapping[str, Array],
        x: Array,
        dy: Array,
        *,
        asked: bool,
    ) -> Generator[Part, None, tuple[Array, Arrays]]:
        """Return the gradients of input and parameters; that of the input where it is asked for."""
        if style.kind == COLUMN:
            shape = (*dy.shape[:-1], layer.out_features)
            local = yield from self._moved(style.output, LAST, shape, dy)
        else:
            shape = (*dy.shape[:-1], layer.out_features)
            local = yield from self._moved(style.output, REPLICATE, shape, dy)
        rows = flat(local)
        grads = {"weight": rows.T @ flat(x)}
        if layer.bias:
            grads["bias"] = rows.sum(axis=0)
        dx = local @ own["weight"]
        if not asked:
            return dx, grads
        shape = (*dx.shape[:-1], layer.in_features)
        now = partial_of("sum") if style.kind == COLUMN else LAST
        return (yield from self._moved(now, style.input, shape, dx)), grads


class FullyShardedTensorParallel(FullySharded, TensorParallel):
    """One rank of a model whose layers are cut, and what is left of them is sharded."""

    def settle(self) -> None:
        """Find both groups."""
        TensorParallel.settle(self)
        FullySharded.settle(self)

    def refused(self, given: Any) -> str | None:
        """Refuse what the cutting of layers refuses."""
        return TensorParallel.refused(self, given)
