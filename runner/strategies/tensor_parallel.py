"""`parallelize_module`: features of layers, or positions of sequences, are cut over ranks.

A column-wise Linear makes some features of its output, from the whole input; a row-wise one takes
some features of its input, and the partial outputs are summed. Between layers a tensor is plain, or
distributed with its placement; each layer brings what enters it to what it wants, and what leaves
it to what is asked for. What is said is what these placements cost
(:mod:`runner.operations.placement`), forward and, where something before it has to learn, back.
The bias of a row-wise layer is whole, and added once. A `SequenceParallel` norm computes some
positions: its gradients are partial sums until the optimizer meets them (torch 2.13, measured).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from runner.modules.attention import ENTRIES, EXIT, CausalSelfAttention
from runner.modules.base import Array, Layer, Params, flat, inner
from runner.modules.layer_norm import LayerNorm
from runner.modules.linear import Linear
from runner.modules.loss import CrossEntropy, MseLoss
from runner.modules.optimizer import SGD
from runner.modules.rms_norm import RMSNorm
from runner.modules.sequential import Residual, Sequential
from runner.operations.base import Group, Part
from runner.operations.placement import (
    REPLICATE,
    Layout,
    Placement,
    chunks,
    normalised,
    partial_of,
    placement_of,
    redistributed,
    shard,
)
from runner.strategies.alone import Alone
from runner.strategies.base import (
    Arrays,
    Calls,
    Strategy,
    TrainStep,
    clipped,
    sliced,
    squares,
    summed,
    typed,
)
from runner.strategies.fully_shard import FullySharded

COLUMN, ROW, SEQUENCE = "ColwiseParallel", "RowwiseParallel", "SequenceParallel"
ENTRY, LEAVING = "PrepareModuleInput", "PrepareModuleOutput"
#: the arguments of each style
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    COLUMN: ("input_layouts", "output_layouts", "use_local_output"),
    ROW: ("input_layouts", "output_layouts", "use_local_output"),
    SEQUENCE: ("sequence_dim", "use_local_output"),
    ENTRY: ("input_layouts", "desired_input_layouts", "use_local_output"),
    LEAVING: ("output_layouts", "desired_output_layouts", "use_local_output"),
}
LAST = shard(-1)
SUM = partial_of("sum")


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How one layer is cut, and how its input and output lie.

    `input` is how a plain input is taken to lie, `wanted` what it is brought to, `made` how the
    output lies that comes of it, `output` what that is brought to; `local` gives a plain tensor on.
    """

    kind: str
    input: Placement
    wanted: Placement
    made: Placement
    output: Placement
    local: bool


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
        """Linear layers are cut by features, norms by positions, and these only."""
        layers = dict(layers_below(network))
        for label, style in self.parallelize_plan.items():
            if label not in layers:
                return f"no layer is called `{label}`: {', '.join(layers)} are"
            if style.kind in (COLUMN, ROW) and not isinstance(layers[label], Linear):
                return f"`{label}` is not a Linear: {style.kind} cuts only these here"
            if style.kind == SEQUENCE and not isinstance(layers[label], LayerNorm | RMSNorm):
                return f"`{label}` is not a LayerNorm or RMSNorm: {SEQUENCE} takes only these here"
        return None
