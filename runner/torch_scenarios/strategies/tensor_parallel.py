"""`parallelize_module`: features of layers, or positions of sequences, are cut over ranks.

A column-wise Linear makes some features of its output, from the whole input; a row-wise one takes
some features of its input, and the partial outputs are summed. Between layers a tensor is plain, or
distributed with its placement; each layer brings what enters it to what it wants, and what leaves
it to what is asked for. What is said is what these placements cost
(:mod:`torch_scenarios.operations.placement`), forward and, where something before it has to learn,
back. The bias of a row-wise layer is whole, and added once. A `SequenceParallel` norm computes some
positions: its gradients are partial sums until the optimizer meets them (torch 2.13, measured).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct, field

from torch_scenarios.errors import DataError
from torch_scenarios.modules import Layer, Residual, Sequential
from torch_scenarios.modules.attention import ENTRIES, EXIT, CausalSelfAttention
from torch_scenarios.modules.base import Array, Params, flat, inner
from torch_scenarios.modules.embedding import Embedding
from torch_scenarios.modules.layer_norm import LayerNorm
from torch_scenarios.modules.linear import Linear
from torch_scenarios.modules.loss import CrossEntropy, MseLoss
from torch_scenarios.modules.optimizer import SGD
from torch_scenarios.modules.rms_norm import RMSNorm
from torch_scenarios.operations.base import Group, Part
from torch_scenarios.operations.placement import (
    REPLICATE,
    Layout,
    Placement,
    chunks,
    normalise,
    partial_of,
    placement_of,
    shard,
)
from torch_scenarios.strategies.alone import SingleRank
from torch_scenarios.strategies.fully_shard import FullySharded
from torch_scenarios.strategies.model import Arrays, Calls, LeftOutError, Strategy, TrainStep
from torch_scenarios.strategies.one_process import clip_by_norm, squares
from torch_scenarios.strategies.trainee import narrow_floats, slice_part, sum_partial

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


class Style(Struct, frozen=True, kw_only=True):
    """How one layer is cut, and how its input and output lie.

    `input` is how a plain input is taken to lie, `wanted` what it is brought to, `made` how the
    resulting output lies, `output` what that is brought to; `local` passes a plain tensor on.
    """

    kind: str
    input: Placement
    wanted: Placement
    made: Placement
    output: Placement
    local: bool


class ParallelizeModule(Strategy, frozen=True, kw_only=True):
    """`torch.distributed.tensor.parallel.parallelize_module`.

        parallelize_plan: {up: ColwiseParallel, down: RowwiseParallel}     two ranks

                  rank 0                       rank 1
        x         whole                        whole
        up        rows 0..n/2 of W             rows n/2..n           features of its output
        down      columns 0..n/2 of W          columns n/2..n        of its input: y is partial
        all_reduce y                           one call a block, forward; one backward, for x

    Two layers in a row need one all_reduce, since what `up` leaves split is what `down` takes
    split.
    """

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

    def find_mismatch(self, network: Sequential) -> str | None:
        """Linear layers are cut by features, norms by positions, and these only."""
        layers = dict(layers_below(network))
        for label, style in self.parallelize_plan.items():
            if label not in layers:
                return f"no layer is called `{label}`: {', '.join(layers)} are"
            whole = layers.get(label.rpartition(".")[0], network)
            if not isinstance(whole, PARTED):
                message = f"`{label}` is a part of {type(whole).__name__}, which is not cut here"
                raise LeftOutError(message)
            if style.kind in (COLUMN, ROW) and isinstance(layers[label], Embedding):
                message = f"{style.kind} of the Embedding `{label}`: tables are not cut here"
                raise LeftOutError(message)
            if style.kind in (COLUMN, ROW) and not isinstance(layers[label], Linear):
                return f"`{label}` is not a Linear: {style.kind} cuts only these here"
            if style.kind == SEQUENCE and not isinstance(layers[label], LayerNorm | RMSNorm):
                return f"`{label}` is not a LayerNorm or RMSNorm: {SEQUENCE} takes only these here"
        return None

    def distributes(self, parameter: str) -> bool:
        """Those of layers with a style of their own are."""
        style = self.parallelize_plan.get(parameter.rpartition(".")[0])
        return style is not None and style.kind in (COLUMN, ROW, SEQUENCE)

    def apply(self, real: Any) -> None:
        """Let torch cut the layers."""
        parallel = real.torch.distributed.tensor.parallel
        tensor = real.torch.distributed.tensor

        def make_placement(placement: Placement) -> Any:
            return tensor.Shard(placement.dim) if placement.is_shard else tensor.Replicate()

        def build_style(style: Style) -> Any:
            kind, local = getattr(parallel, style.kind), {"use_local_output": style.local}
            if style.kind == SEQUENCE:
                return kind(sequence_dim=style.input.dim, **local)
            if style.kind == ENTRY:
                given = {"input_layouts": (make_placement(style.input),), **local}
                return kind(desired_input_layouts=(make_placement(style.wanted),), **given)
            if style.kind == LEAVING:
                given = {"output_layouts": (make_placement(style.made),), **local}
                return kind(desired_output_layouts=(make_placement(style.output),), **given)
            given = {
                "input_layouts": make_placement(style.input),
                "output_layouts": make_placement(style.output),
            }
            return kind(**given, **local)

        plan = {label: build_style(style) for label, style in self.parallelize_plan.items()}
        parallel.parallelize_module(real.module, real.mesh(self.device_mesh), plan)


#: layers whose parts a plan may cut: `TensorParallel` goes through each of them part by part
PARTED = (Sequential, CausalSelfAttention)


def layers_below(layer: Any, prefix: str = "") -> Generator[tuple[str, Layer], None, None]:
    """Yield the layers inside of a layer, by their labels: `block.attn.q`."""
    for label, each in getattr(layer, "layers", ()):
        yield f"{prefix}{label}", each
        yield from layers_below(each, f"{prefix}{label}.")


def _read_style(label: str, given: Any) -> tuple[str, dict[str, Any]]:
    """Return the name of a style and its arguments. Raises ValueError or TypeError in words."""
    if not isinstance(given, str) and not (isinstance(given, dict) and len(given) == 1):
        message = f"`{label}` is cut by one style: `ColwiseParallel`, or a mapping with its name"
        raise ValueError(message)
    ((kind, rest),) = ((given, {}),) if isinstance(given, str) else given.items()
    if kind not in ARGUMENTS:
        message = f"`{label}` is cut by one of {', '.join(ARGUMENTS)}, not by `{kind}`"
        raise ValueError(message)
    if not isinstance(rest or {}, dict):
        message = f"what `{kind}` of `{label}` takes is a mapping"
        raise TypeError(message)
    said = rest or {}
    stranger = next((each for each in said if each not in ARGUMENTS[kind]), None)
    if stranger is not None:
        message = f"{kind} has no `{stranger}` here: it takes {' and '.join(ARGUMENTS[kind])}"
        raise ValueError(message)
    return kind, said


def _style(label: str, given: Any) -> Style:
    """Return how a layer is cut, from what the file says of it.

        ColwiseParallel          enters whole          weight cut by rows     leaves as Shard(-1)
        RowwiseParallel          enters as Shard(-1)   weight cut by columns  leaves whole, summed
        SequenceParallel         enters and leaves as Shard(sequence_dim), weight whole
        PrepareModuleInput       what enters is moved, before the layer's own parts
        PrepareModuleOutput      what leaves is moved

    Defaults are those of torch.distributed.tensor.parallel. Raises ValueError or TypeError in
    words.
    """
    kind, said = _read_style(label, given)
    if not isinstance(said.get("use_local_output", True), bool):
        message = "`use_local_output` is true or false"
        raise TypeError(message)

    def lies(name: str, default: Placement) -> Placement:
        found = said.get(name)
        found = found[0] if isinstance(found, list) and len(found) == 1 else found
        placement = default if found is None else placement_of(str(found))
        if placement.is_partial:
            message = f"`{name}` of `{label}` is a Shard or Replicate()"
            raise ValueError(message)
        return placement

    local = said.get("use_local_output", kind not in (SEQUENCE, ENTRY))
    if kind == SEQUENCE:
        dim = said.get("sequence_dim", 1)
        if type(dim) is not int:
            message = "`sequence_dim` is an integer"
            raise TypeError(message)
        cut = shard(dim)
        return Style(kind=kind, input=cut, wanted=cut, made=cut, output=cut, local=local)
    if kind == ENTRY:
        input_, wanted = lies("input_layouts", REPLICATE), lies("desired_input_layouts", REPLICATE)
        return Style(
            kind=kind, input=input_, wanted=wanted, made=wanted, output=wanted, local=local
        )
    if kind == LEAVING:
        made, output = lies("output_layouts", REPLICATE), lies("desired_output_layouts", REPLICATE)
        return Style(kind=kind, input=made, wanted=made, made=made, output=output, local=local)
    column = kind == COLUMN
    return Style(
        kind=kind,
        input=lies("input_layouts", REPLICATE if column else LAST),
        wanted=REPLICATE if column else LAST,
        made=LAST if column else SUM,
        output=lies("output_layouts", LAST if column else REPLICATE),
        local=local,
    )


class ActivationPart(Struct, frozen=True, kw_only=True):
    """A tensor between two layers: what the rank holds of it.

    `placement` is how it lies, and `shape` that of the whole; None is a plain tensor.

        ActivationPart(local=[4, 2], placement=Shard(1), shape=(4, 8))      two of eight features

    A plain tensor next to one that is distributed is what torch refuses (`MixedTensorsError`): it
    knows no layout for the sum of both.
    """

    local: Array
    placement: Placement | None = None
    shape: tuple[int, ...] = ()


#: a way through layers, with the calls on it
Way: TypeAlias = Generator[Part, None, Any]


class MixedTensorsError(Exception):
    """A model whose plan torch refuses: the reason.

    Torch says "got mixed torch.Tensor and DTensor", in the middle of a step; here the first layer
    that would do it is named.
    """


def _fit(name: str, x: ActivationPart, features: int) -> None:
    """Raise DataError where a rank has more or fewer features than its part of a layer takes.

    Torch raises in the product, or in the norm: a layer without a style takes a whole.
    """
    shape = x.local.shape
    if not shape or shape[-1] != features:
        message = (
            f"`{name}` takes {features} features, and gets {list(shape)}: what a column-wise layer "
            "leaves is a part, which a row-wise one takes"
        )
        raise DataError(message)


class TensorParallel(SingleRank):
    """One rank of a model under `parallelize_module`.

    Its gradients are those of its own features, and are not summed: no other rank has them. The
    gradient of a layer that every rank has whole is either the same everywhere or a partial sum,
    and which of them depends on how its input lies: with SequenceParallel each rank has the
    gradient of its positions, and they must be summed (`_partial`).
    """

    def settle(self) -> None:
        """Find the group, and how each parameter is cut."""
        super().settle()
        said: ParallelizeModule = self.model.strategy(ParallelizeModule)
        self._plan = said.parallelize_plan
        self._tp: Group = self.caller.mesh(said.device_mesh)[-1]
        self._at = self._tp.group_rank(self.rank)
        #: parameters whose gradients are partial sums, and what these sum up to
        self._partial = tuple(
            name
            for name in self.model.parameters
            if (style := self._plan.get(name.rpartition(".")[0])) and style.kind == SEQUENCE
        )
        self._whole_grads: Arrays = {}

    def share(self, name: str, whole: Array) -> Array:
        """Return the rank's features: of the output, or of the input."""
        label, _, kind = name.rpartition(".")
        style = self._plan.get(label)
        cut = style is not None and (style.kind == COLUMN or (style.kind == ROW and kind != "bias"))
        if style is None or not cut:
            return whole
        axis = 0 if style.kind == COLUMN else 1
        return slice_part(whole, chunks(whole.shape[axis], self._tp.size), self._at, axis)

    def placements(self, name: str) -> tuple[Placement, ...]:
        """Cut by features where the style cuts; a layer without a style has plain parameters."""
        label, _, kind = name.rpartition(".")
        style = self._plan.get(label)
        if style is None or style.kind not in (COLUMN, ROW, SEQUENCE):
            return ()
        if style.kind == COLUMN:
            return (shard(0),)
        return (shard(1),) if style.kind == ROW and kind != "bias" else (REPLICATE,)

    def placements_of_grad(self, name: str) -> tuple[Placement, ...]:
        """That of a norm is a sum of which each rank has its own positions' part."""
        partial = name in self._partial and not self._summed
        return (SUM,) if partial else self.placements(name)

    # ------------------------------------------------------------------ what torch refuses

    def explain_refusal(self, given: Any) -> str | None:
        """Refuse features that do not divide, and plain tensors that meet distributed ones."""
        layers = dict(layers_below(self.model.network))
        for label, style in self._plan.items():
            layer: Any = layers[label]
            if style.kind not in (COLUMN, ROW):
                continue
            count = layer.out_features if style.kind == COLUMN else layer.in_features
            if count % self._tp.size:
                return f"the {count} features of `{label}` do not divide by {self._tp.size} ranks"
            if style.kind == ROW and count == 1 and style.input.is_shard:
                return f"the one feature that enters `{label}` cannot be cut: torch removes it"
        try:
            ends = self._is_distributed(self.model.network, "", given=False)
        except MixedTensorsError as refusal:
            return str(refusal)
        if ends and isinstance(self.model.loss, CrossEntropy):
            return "cross_entropy takes a distributed tensor whose classes may be cut"
        if given["clip_grad_norm_"] is not None:
            return self._unclippable(layers)
        return None

    def _is_distributed(self, layer: Any, name: str, *, given: bool) -> bool:
        """Return whether what leaves a layer is a distributed tensor. Raises MixedTensorsError."""
        style = self._plan.get(name)
        enters = given if style is None or style.kind == LEAVING else True
        if style is not None and style.kind == ENTRY:
            enters = not style.local
        leaves = enters
        if isinstance(layer, CausalSelfAttention):
            leaves = self._attends(layer, name, given=enters)
        elif isinstance(layer, Sequential):
            for label, each in layer.layers:
                inside = f"{name}.{label}" if name else label
                leaves = self._is_distributed(each, inside, given=leaves)
            if isinstance(layer, Residual) and leaves != enters:
                message = f"`{name}` adds a plain tensor and a distributed one"
                raise MixedTensorsError(message)
        elif style is None and enters and layer.shapes():
            message = f"`{name}` has plain parameters, and a distributed tensor enters it"
            raise MixedTensorsError(message)
        return leaves if style is None or style.kind == ENTRY else not style.local

    def _attends(self, layer: CausalSelfAttention, name: str, *, given: bool) -> bool:
        layers = dict(layer.layers)
        made = [
            self._is_distributed(layers[each], f"{name}.{each}", given=given) for each in ENTRIES
        ]
        if any(made):
            message = f"scaled_dot_product_attention of `{name}` takes distributed tensors"
            raise MixedTensorsError(message)
        return self._is_distributed(layers[EXIT], f"{name}.{EXIT}", given=False)

    def _unclippable(self, layers: Mapping[str, Layer]) -> str | None:
        plain = [
            name
            for name in self.model.parameters
            if (style := self._plan.get(name.rpartition(".")[0])) is None
            or style.kind in (ENTRY, LEAVING)
        ]
        if not plain:
            return None
        return f"clip_grad_norm_ of distributed tensors and of plain ones, as {plain[0]} is"

    # ------------------------------------------------------------------ placements on the way

    def _move(self, value: ActivationPart, wanted: Placement) -> Way:
        """Bring a distributed tensor, or its gradient, to a placement."""
        now = value.placement
        assert now is not None
        (now, wanted) = normalise((now, wanted), len(value.shape))
        layout = Layout(
            mesh="", groups=(self._tp,), placements=(now,), shape=value.shape, rank=self.rank
        )
        local = yield from layout.redistribute((wanted,), value.local)
        return ActivationPart(local=local, placement=wanted, shape=value.shape)

    def _take(self, x: ActivationPart, placement: Placement) -> ActivationPart:
        """Take a plain tensor for one that lies so; a distributed one is what it is."""
        if x.placement is not None:
            return x
        (lies,) = normalise((placement,), x.local.ndim)
        shape = list(x.local.shape)
        if lies.is_shard:
            shape[lies.dim] *= self._tp.size
        return ActivationPart(local=x.local, placement=lies, shape=tuple(shape))

    def compute(
        self, params: Arrays, order: TrainStep, x: Array, y: Array
    ) -> Generator[Part, None, tuple[Array, Arrays]]:
        """Go forward and backward, layer by layer."""
        layers = self.model.network.without(order.skip).layers
        made, saved, _ = yield from self._layers(
            layers, "", params, ActivationPart(local=x), learns=False
        )
        if made.placement is None or not made.placement.is_shard:
            # parts that a rank takes for a whole make another shape than one process has
            self.model.loss.fit(made.local.shape, y.shape)
        if made.placement is None:
            loss, dy = self.model.loss.value(made.local, y)
            given = ActivationPart(local=dy)
        elif not made.placement.is_shard:
            loss, dy = self.model.loss.value(made.local, y)
            given = ActivationPart(local=dy, placement=made.placement, shape=made.shape)
        else:
            loss, given = self._loss_of_a_part(made, y)
        uneven = self._gathers_its_terms(made)
        if uneven:
            terms, _ = self.model.loss.terms(made.local, self._cut(made, y))
            laid = ActivationPart(local=terms, placement=made.placement, shape=made.shape)
            whole = yield from self._move(laid, REPLICATE)
            loss = np.asarray(whole.local.mean(), terms.dtype)
        grads: Arrays = {}
        yield from self._layers_back(saved, given, grads)
        if made.placement is not None and made.placement.is_shard and not uneven:
            loss = yield from sum_partial(self._tp, loss.reshape(()))
        return loss, {name: grads[name] for name in params if name in grads}

    def know_loss(self, order: TrainStep, x: Array, y: Array) -> None:
        """A distributed loss is that of all ranks' parts together."""
        batch = order.batch
        if (
            batch is not None
            and self.caller.group(batch.group).ranks == self._tp.ranks
            and self._is_distributed(self.model.network, "", given=False)
        ):
            x, y = narrow_floats(order.input), narrow_floats(order.target)
        super().know_loss(order, x, y)

    def _gathers_its_terms(self, made: ActivationPart) -> bool:
        """Whether `mean` has parts of several sizes before it, which it gathers first.

        `mse_loss` does not, and has a wrong mean: a fault of torch (2.13 and 2.14).
        """
        if made.placement is None or type(self.model.loss) is MseLoss:
            return False
        lies = made.placement
        uneven = lies.is_shard and made.shape[lies.dim] % self._tp.size != 0
        return uneven and self.model.loss.reduction == "mean"

    def _cut(self, made: ActivationPart, y: Array) -> Array:
        """Return the target as the output lies; it may be cut already."""
        placement: Any = made.placement
        if not placement.is_shard or y.shape == made.local.shape:
            return y
        if y.ndim <= placement.dim:
            message = (
                f"the output is cut along dimension {placement.dim}, which a target of "
                f"{list(y.shape)} has not"
            )
            raise DataError(message)
        sizes = chunks(y.shape[placement.dim], self._tp.size)
        return slice_part(y, sizes, self._at, placement.dim)

    def _loss_of_a_part(self, made: ActivationPart, y: Array) -> tuple[Array, ActivationPart]:
        """Return what this rank adds to the loss, and the gradient of what it has."""
        part = self._cut(made, y)
        self.model.loss.fit(made.local.shape, part.shape)
        terms, dy = self.model.loss.terms(made.local, part)
        mean = self.model.loss.reduction != "sum"
        count = max(1, int(np.prod(made.shape))) if mean else 1
        kind = made.local.dtype.type
        loss = np.asarray(terms.sum() / kind(count), made.local.dtype)
        return loss, ActivationPart(
            local=dy / kind(count), placement=made.placement, shape=made.shape
        )

    # ------------------------------------------------------------------ forward

    def _layers(
        self,
        layers: tuple[tuple[str, Layer], ...],
        prefix: str,
        params: Params,
        x: ActivationPart,
        *,
        learns: bool,
    ) -> Way:
        """Go forward through layers; return the output, what is kept, and if anything learns."""
        saved: list[Any] = []
        for label, layer in layers:
            name = f"{prefix}{label}"
            x, kept = yield from self._layer(name, layer, inner(params, label), x, learns=learns)
            learns = learns or bool(layer.shapes())
            saved.append((name, layer, inner(params, label), kept))
        return x, saved, learns

    def _layer(self, name: str, layer: Any, own: Params, x: ActivationPart, *, learns: bool) -> Way:
        """Go forward through one layer, with what its style does before and after it."""
        style = self._plan.get(name)
        entered = x
        if style is not None and style.kind != LEAVING:
            x = yield from self._move(self._take(x, style.input), style.wanted)
            if style.kind == ENTRY and style.local:
                x = ActivationPart(local=x.local)
        y, kept = yield from self._compute_local(name, layer, own, x, learns=learns)
        before = y
        if style is not None and style.kind != ENTRY:
            y = yield from self._move(self._take(y, style.made), style.output)
            y = self._add_bias(style, layer, own, y)
            if style.local:
                y = ActivationPart(local=y.local)
        return y, (entered, before, kept, learns)

    def _compute_local(
        self, name: str, layer: Any, own: Params, x: ActivationPart, *, learns: bool
    ) -> Way:
        """Go forward through the layer itself. DataError where this rank's part does not fit it."""
        style = self._plan.get(name)
        if style is not None and style.kind in (COLUMN, ROW):
            _fit(name, x, own["weight"].shape[1])
        if style is not None and style.kind == COLUMN:
            y = x.local @ own["weight"].T
            y = y + own["bias"] if layer.bias else y
            shape = (*x.shape[:-1], layer.out_features)
            return ActivationPart(local=y, placement=shard(len(shape) - 1), shape=shape), x
        if style is not None and style.kind == ROW:
            shape = (*x.shape[:-1], layer.out_features)
            return ActivationPart(local=x.local @ own["weight"].T, placement=SUM, shape=shape), x
        if isinstance(layer, CausalSelfAttention):
            return (yield from self._attention(name, layer, own, x, learns=learns))
        if isinstance(layer, Sequential):
            made, saved, _ = yield from self._layers(
                layer.layers, f"{name}.", own, x, learns=learns
            )
            if isinstance(layer, Residual):
                local = x.local + made.local
                made = ActivationPart(local=local, placement=made.placement, shape=made.shape)
            return made, (x, saved)
        if isinstance(layer, Linear):
            _fit(name, x, layer.in_features)
        elif isinstance(layer, LayerNorm | RMSNorm):
            _fit(name, x, layer.normalized_shape)
        local, kept = layer.forward(own, x.local)
        return ActivationPart(local=local, placement=x.placement, shape=x.shape), kept

    def _attention(
        self, name: str, layer: CausalSelfAttention, own: Params, x: ActivationPart, *, learns: bool
    ) -> Way:
        layers, kept = dict(layer.layers), {}
        entered = []
        for label in ENTRIES:
            y, kept[label] = yield from self._layer(
                f"{name}.{label}", layers[label], inner(own, label), x, learns=learns
            )
            entered.append(y)
        mixed, attended = layer.attend(*(each.local for each in entered))
        first = entered[0]
        between = ActivationPart(local=mixed, placement=first.placement, shape=first.shape)
        y, kept[EXIT] = yield from self._layer(
            f"{name}.{EXIT}", layers[EXIT], inner(own, EXIT), between, learns=True
        )
        return y, (kept, attended, first)

    def _add_bias(self, style: Style, layer: Any, own: Params, y: ActivationPart) -> ActivationPart:
        if style.kind != ROW or not layer.bias:
            return y
        bias = own["bias"]
        assert y.placement is not None
        if y.placement.is_shard and y.placement.dim == len(y.shape) - 1:
            bias = slice_part(bias, chunks(len(bias), self._tp.size), self._at, 0)
        local = np.asarray(y.local + bias, y.local.dtype)
        return ActivationPart(local=local, placement=y.placement, shape=y.shape)

    # ------------------------------------------------------------------ back

    def _layers_back(self, saved: list[Any], dy: ActivationPart, grads: Arrays) -> Way:
        for name, layer, own, kept in reversed(saved):
            dy = yield from self._layer_back(name, layer, own, kept, dy, grads)
            yield from self.went_back(name, grads)
        return dy

    def went_back(self, name: str, grads: Arrays) -> Calls:
        """Do what follows the backward of a layer."""
        yield from ()

    # The gradient of a tensor lies as the tensor lay, except for sums.
    #
    #     forward     x whole  --up-->  split  --down-->  partial sum  --all_reduce-->  y whole
    #     backward    dx partial sum  <--up--  split  <--down--  dy whole
    #
    # What is whole forward is used by each rank, so that its gradient is a sum over the ranks; what
    # is a partial sum forward has the same derivative for each part, so that its gradient is whole.
    # So the two are exchanged, and a call is made backward where none was made forward: the
    # all_reduce of dx. Torch leaves it out where no layer before has parameters (`learns`): then no
    # one asks for dx.
    def _layer_back(
        self, name: str, layer: Any, own: Params, kept: Any, dy: ActivationPart, grads: Arrays
    ) -> Way:
        """Go back through one layer; the gradient lies as the tensor lay."""
        entered, before, inside, learns = kept
        style = self._plan.get(name)
        if style is not None and style.kind != ENTRY:
            made = self._take(before, style.made)
            (output,) = normalise((style.output,), len(made.shape))
            dy = ActivationPart(local=dy.local, placement=output, shape=made.shape)
            # the gradient of a sum that was reduced is whole on each rank
            now = made.placement
            assert now is not None
            dy = yield from self._move(dy, REPLICATE if now.is_partial else now)
            if before.placement is None:
                dy = ActivationPart(local=dy.local)
        dx = yield from self._compute_local_backward(
            name, layer, own, inside, dy, grads, learns=learns
        )
        if style is None or style.kind == LEAVING:
            return dx
        taken = self._take(entered, style.input)
        now, shape = taken.placement, taken.shape
        assert now is not None
        if dx.placement is None:
            (wanted,) = normalise((style.wanted,), len(shape))
            dx = ActivationPart(local=dx.local, placement=wanted, shape=shape)
        if learns:
            dx = yield from self._move(dx, now)
        return ActivationPart(local=dx.local) if entered.placement is None else dx

    def _compute_local_backward(
        self,
        name: str,
        layer: Any,
        own: Params,
        kept: Any,
        dy: ActivationPart,
        grads: Arrays,
        *,
        learns: bool,
    ) -> Way:
        """Go back through the layer itself, with what lies on this rank of its tensors and weights.

        For `y = x @ w.T`, cut by rows of w, each rank has the gradient of its columns of y. `dy @
        w` is then its part of a sum over ranks (SUM), and not yet the gradient of x. Cut by columns
        of w, each rank has the whole dy, and gets the gradient of its own columns of x.
        """
        style = self._plan.get(name)
        if style is not None and style.kind in (COLUMN, ROW):
            rows = flat(dy.local)
            grads[f"{name}.weight"] = rows.T @ flat(kept.local)
            if layer.bias:
                grads[f"{name}.bias"] = rows.sum(axis=0)
            placement = SUM if style.kind == COLUMN else shard(len(kept.shape) - 1)
            return ActivationPart(
                local=dy.local @ own["weight"], placement=placement, shape=kept.shape
            )
        if isinstance(layer, CausalSelfAttention):
            return (yield from self._attention_back(name, layer, own, kept, dy, grads))
        if isinstance(layer, Sequential):
            x, saved = kept
            dx = yield from self._layers_back(saved, dy, grads)
            if isinstance(layer, Residual):
                dx = ActivationPart(local=dx.local + dy.local, placement=x.placement, shape=x.shape)
            return dx
        local, found = layer.backward(own, kept, dy.local)
        grads |= {f"{name}.{each}": value for each, value in found.items()}
        return ActivationPart(local=local, placement=dy.placement, shape=dy.shape)

    def _attention_back(
        self,
        name: str,
        layer: CausalSelfAttention,
        own: Params,
        saved: Any,
        dy: ActivationPart,
        grads: Arrays,
    ) -> Way:
        kept, attended, first = saved
        layers = dict(layer.layers)
        between = yield from self._layer_back(
            f"{name}.{EXIT}", layers[EXIT], inner(own, EXIT), kept[EXIT], dy, grads
        )
        total: ActivationPart | None = None
        given = dict(zip(ENTRIES, layer.attend_back(attended, between.local), strict=True))
        for label in reversed(ENTRIES):
            back = ActivationPart(local=given[label], placement=first.placement, shape=first.shape)
            dx = yield from self._layer_back(
                f"{name}.{label}", layers[label], inner(own, label), kept[label], back, grads
            )
            local = dx.local if total is None else total.local + dx.local
            total = ActivationPart(local=local, placement=dx.placement, shape=dx.shape)
        assert total is not None
        return total

    # ------------------------------------------------------------------ clip, step and compare

    def clip(self, most: float) -> Calls:
        """Clip by the norm over the ranks: what each has of all is counted once."""
        known: Arrays = {}
        for name, value in self.grads.items():
            # a partial sum is reduced for its norm, and stays one
            left = name in self._partial and not self._summed
            known[name] = (yield from sum_partial(self._tp, value)) if left else value
        total = yield from self._norms(squares(known.values()))
        self.grads = clip_by_norm(self.grads, most, float(np.sqrt(total.sum())))

    def _norms(self, found: Array) -> Way:
        parts = [1 if self._is_cut(name) else self._tp.size for name in self.grads]
        return (yield from sum_partial(self._tp, found / np.asarray(parts, np.float32)))

    def _is_cut(self, name: str) -> bool:
        whole = self.whole[name]
        return TensorParallel.share(self, name, whole).shape != whole.shape

    #: whether nothing is partial once the backward has ended
    _summed = False

    def forget_gradients(self) -> None:
        """Forget what the partial sums came to as well."""
        super().forget_gradients()
        self._whole_grads = {}

    def update(self) -> Calls:
        """Step; a partial sum is reduced as often as the optimizer's formula has it."""
        partial = [name for name in self._partial if name in self.grads]
        kept = {name: self.grads[name] for name in partial}
        times = 1 if isinstance(self.model.optimizer, SGD) else 3
        if not self._summed:
            for name in partial:
                for _ in range(times):
                    self._whole_grads[name] = yield from sum_partial(self._tp, kept[name])
                self.grads[name] = self._whole_grads[name]
        yield from super().update()
        self.grads |= kept

    def comparable_grad(self, name: str) -> Array | None:
        """Return what a partial sum came to."""
        if name in self._partial and not self._summed:
            return self._whole_grads.get(name)
        return super().comparable_grad(name)


class FullyShardedTensorParallel(FullySharded, TensorParallel):
    """One rank of a model whose layers are cut, and what is left of them is sharded.

        mesh [2, 2], dims [dp, tp]      W [8, 4] cut by ColwiseParallel over tp, by rows over dp
                     tp 0       tp 1
        dp 0         rows 0-1   rows 4-5
        dp 1         rows 2-3   rows 6-7

    The norm of a gradient takes both dimensions: squares are summed over dp, and over tp for what
    is cut there.
    """

    _summed = True

    def settle(self) -> None:
        """Find both groups."""
        TensorParallel.settle(self)
        FullySharded.settle(self)

    def explain_refusal(self, given: Any) -> str | None:
        """Refuse what the cutting of layers refuses."""
        return TensorParallel.explain_refusal(self, given)

    def clip(self, most: float) -> Calls:
        """Clip by the norm over both dimensions."""
        total = yield from sum_partial(self._group, squares(self.grads.values()))
        total = yield from self._norms(total)
        self.grads = clip_by_norm(self.grads, most, float(np.sqrt(total.sum())))

    def compute(
        self, params: Arrays, order: TrainStep, x: Array, y: Array
    ) -> Generator[Part, None, tuple[Array, Arrays]]:
        """Go forward and backward, and know what is reduced on the way."""
        self._left = {
            name
            for unit in self._units(order.skip)
            if order.sync
            for name in unit.names
            if name in self._partial
        }
        self._late = {each.names[0] for each in self._units(order.skip) if each.late}
        return (yield from TensorParallel.compute(self, params, order, x, y))

    def went_back(self, name: str, grads: Arrays) -> Calls:
        """A unit whose gradients are whole has its partial ones summed up before the next layer."""
        if name in self._said.modules:
            own = [each for each in self.model.parameters if each.startswith(f"{name}.")]
            if own and own[0] not in self._late:
                yield from self._sum_up(own, grads)

    def _sum_up(self, names: Any, grads: Arrays) -> Calls:
        for name in (each for each in names if each in self._left):
            self._left.discard(name)
            before = self._kept.pop(name, None)
            value = grads[name] if before is None else grads[name] + before
            grads[name] = yield from sum_partial(self._tp, value)

    def _scatter(self, names: tuple[str, ...], grads: Arrays) -> Calls:
        """Sum partial gradients up over the positions first."""
        self._kept = {name: value for name, value in self._kept.items() if name not in names}
        yield from self._sum_up(names, grads)
        yield from super()._scatter(names, grads)

    def update(self) -> Calls:
        """Step on what the rank holds."""
        yield from SingleRank.update(self)
