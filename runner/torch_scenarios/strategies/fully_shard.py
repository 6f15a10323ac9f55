"""`fully_shard`: each rank has a part of every parameter, and gathers a unit where it is needed.

A unit is a layer that was wrapped, and the root has the rest. What is said (torch 2.13, measured):
forward, an all_gather a unit; backward, where the unit was given away after the forward, another
one (the next unit's is called before this one's gradients are reduced), and a reduce_scatter a
unit. Parts are rows, as `torch.chunk` cuts them; what travels is padded. Gradients are summed, and
then divided. With a mesh of two dimensions the outer one replicates: an all_reduce follows each
reduce_scatter.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from torch_scenarios.modules import Sequential
from torch_scenarios.modules.base import Array
from torch_scenarios.operations.base import Group, Part
from torch_scenarios.operations.placement import (
    REPLICATE,
    Placement,
    call,
    chunks,
    pad,
    shard,
)
from torch_scenarios.strategies.alone import SingleRank
from torch_scenarios.strategies.model import Arrays, Calls, Strategy, TrainStep, unknown_label
from torch_scenarios.strategies.one_process import clip_by_norm, squares
from torch_scenarios.strategies.trainee import slice_part, sum_over, sum_partial

#: dtypes of parameters and gradients on their way
DTYPES = ("bfloat16", "float16", "float32")


class Precision(Struct, frozen=True, kw_only=True):
    """`torch.distributed.fsdp.MixedPrecisionPolicy`, by its arguments.

    >>> Precision(param_dtype="bfloat16", reduce_dtype="float32").output_dtype is None
    True

    Without `reduce_dtype` gradients travel in `param_dtype`: a bfloat16 sum over many ranks loses
    what each of them adds.
    """

    param_dtype: str | None = None
    reduce_dtype: str | None = None
    output_dtype: str | None = None


class FullyShard(Strategy, frozen=True, kw_only=True):
    """`torch.distributed.fsdp.fully_shard`, of each of `modules` and then of the whole.

        modules: [up]        units: up; then what is left, down

        forward     all_gather up, compute, free      all_gather down, compute
        backward    down, reduce_scatter              all_gather up, compute, reduce_scatter

    What is named is a unit of its own: its parameters come and go together. With no module named,
    all parameters are one unit, and are whole on each rank for the length of a step.
    """

    name = "fully_shard"
    imports = ("torch.distributed.fsdp", "torch.distributed.tensor")
    left_out: ClassVar[Mapping[str, str]] = {
        "offload_policy": "CPUOffloadPolicy pins memory, which takes an accelerator",
        "gradient_divide_factor": "Cannot use ReduceOp.PREMUL_SUM with Gloo",
        "shard_placement_fn": "parameters are cut by rows here",
    }
    mesh: str
    modules: tuple[str, ...] = ()
    reshard_after_forward: bool | int | None = None
    mp_policy: Precision | None = None

    @staticmethod
    def read_mp_policy(given: Any) -> Precision | None:
        """Return the dtypes of a `MixedPrecisionPolicy`. Raises ValueError."""
        if given is None:
            return None
        said = dict(given) if isinstance(given, dict) else {}
        said = said.get("MixedPrecisionPolicy", said)
        known = Precision.__struct_fields__
        if not isinstance(given, dict) or any(each not in known for each in said):
            message = f"a mapping is wanted, of {', '.join(known)} to {', '.join(DTYPES)}"
            raise ValueError(message)
        if any(each not in (None, *DTYPES) for each in said.values()):
            message = f"a dtype is one of {', '.join(DTYPES)}"
            raise ValueError(message)
        return Precision(**said)

    @property
    def compute_dtype(self) -> str:
        """The dtype of the parameters that are gathered."""
        return (self.mp_policy and self.mp_policy.param_dtype) or "float32"

    @property
    def reduce_dtype(self) -> str:
        """The dtype in which gradients are reduced."""
        return (self.mp_policy and self.mp_policy.reduce_dtype) or self.compute_dtype

    @property
    def broken(self) -> Mapping[str, str]:
        """The first releases that had it."""
        return {"<2.7": "its fully_shard fails on a CPU (`Stream` has no attribute `record_event`)"}

    @property
    def where(self) -> str | None:
        """Its mesh."""
        return self.mesh

    def distributes(self, parameter: str) -> bool:
        """Every parameter is."""
        return True

    def find_mismatch(self, network: Sequential) -> str | None:
        """Units are layers."""
        return unknown_label(network, self.modules)

    def apply(self, real: Any) -> None:
        """Wrap the layers, and the whole."""
        shard = real.torch.distributed.fsdp.fully_shard
        more: dict[str, Any] = {"mesh": real.mesh(self.mesh)}
        if self.reshard_after_forward is not None:
            more["reshard_after_forward"] = self.reshard_after_forward
        last: dict[str, Any] = {}
        if self.mp_policy is not None:
            policy = real.torch.distributed.fsdp.MixedPrecisionPolicy
            stated = asdict(self.mp_policy)
            dtypes = {name: getattr(real.torch, dtype) for name, dtype in stated.items() if dtype}
            last["mp_policy"] = policy(**dtypes)
            dtypes.pop("output_dtype", None)  # that of the whole alone
            more["mp_policy"] = policy(**dtypes)
        layers = dict(real.module.named_children())
        for label in self.modules:
            shard(layers[label], **more)
        shard(real.module, **(more | last))
        real.set_sync = real.module.set_requires_gradient_sync


# In which order units travel, and why two ranks may disagree on it.
#
#     forward      gather a   gather b   gather c
#     backward                 gather b   reduce c   gather a   reduce b   reduce a
#
# Each gather and each reduction is a collective on one group, and matches by its place. A rank that
# passes a layer by (a condition on its data, a layer that is dropped) leaves out one of them: from
# there on its calls meet the next ones of its peers, with other sizes. That is `shape_mismatch` or
# a hang in the analysis, as it is in NCCL.
class Unit(Struct, frozen=True, kw_only=True):
    """The parameters that travel together.

    `resharded` ones are given away after the forward. `late` ones are reduced when the backward has
    ended: no gradient flows to their input, which would tell that theirs are whole.

    >>> Unit(names=("up.weight", "up.bias"), resharded=True, late=False).over
    0
    """

    names: tuple[str, ...]
    resharded: bool
    late: bool
    #: ranks over which it is kept between forward and backward; 0 is all
    over: int = 0


def dtype_named(name: str) -> Any:
    """Return NumPy's dtype of torch's name."""
    return np.dtype(getattr(ml_dtypes, name, name))


class FullySharded(SingleRank):
    """One rank of a model under `fully_shard`.

    A parameter of r rows over n ranks is cut as `torch.chunk` cuts it: 5 rows over 4 ranks are 2,
    2, 1 and 0. The all_gather pads each part to 2 rows, so that all members send as many bytes.

    Of two mesh dimensions the outer one replicates (HSDP): gradients are reduce-scattered along the
    inner dimension and all-reduced along the outer one.
    """

    def settle(self) -> None:
        """Find the groups: of two mesh dimensions the outer one replicates."""
        self._said: FullyShard = self.model.strategy(FullyShard)
        groups = self.caller.mesh(self._said.mesh)
        self._group: Group = groups[-1]
        self._replicas: Group | None = groups[0] if len(groups) > 1 else None
        self._said_dtype = dtype_named(self._said.compute_dtype)
        self._padded_whole: Arrays = {}
        #: gradients of whole parameters that were not synchronised yet
        self._kept: Arrays = {}

    def share(self, name: str, whole: Array) -> Array:
        """Return the rank's rows."""
        part = super().share(name, whole)
        sizes = chunks(part.shape[0], self._group.size)
        return slice_part(part, sizes, self._group.group_rank(self.rank))

    def placements(self, name: str) -> tuple[Placement, ...]:
        """Cut by rows over the last dimension of its mesh, and the same on an outer one."""
        inner = super().placements(name)
        outer = (REPLICATE,) if self._replicas is not None else ()
        return (*outer, shard(0), *inner)

    def _rows(self, name: str) -> int:
        """Return the rows of a parameter, all ranks together."""
        return int(super().share(name, self.whole[name]).shape[0])

    def forget_gradients(self) -> None:
        """Forget those that were not synchronised as well."""
        super().forget_gradients()
        self._kept = {}

    def _units(self, skip: tuple[str, ...]) -> list[Unit]:
        """Return the units in the order of the forward; the root comes first, if it has any.

        A unit is what `fully_shard` was called on: its parameters are gathered in one call before
        its forward, and given back after it where `resharded`. Parameters in no such module belong
        to the root, which is gathered before all.
        """
        stated = self._said.reshard_after_forward
        names = self.model.parameters
        layers = [label for label, _ in self.model.network.layers]
        wrapped = {
            label: tuple(each for each in names if each.startswith(f"{label}."))
            for label in layers
            if label in self._said.modules
        }
        inside = {each for listed in wrapped.values() for each in listed}
        root = tuple(each for each in names if each not in inside)
        # the root keeps what it has gathered unless `reshard_after_forward` says otherwise
        over = stated if type(stated) is int else 0
        if over == self._group.size:
            over = 0
        stated = stated if over != 1 else False
        found = [Unit(names=root, resharded=bool(stated), late=True, over=over)]
        learns = False
        for label in layers:
            if label in skip:
                continue
            if label in wrapped:
                own = wrapped[label]
                kept = stated is not False
                found.append(Unit(names=own, resharded=kept, late=not learns, over=over))
            learns = learns or any(each.startswith(f"{label}.") for each in names)
        return [each for each in found if each.names]

    def explain_refusal(self, given: Any) -> str | None:
        """Refuse ranks between forward and backward that do not divide all of them."""
        stated = self._said.reshard_after_forward
        if type(stated) is int and self._group.size % stated:
            return f"reshard_after_forward is {stated}, which does not divide {self._group.size}"
        return super().explain_refusal(given)

    def _gather(self, names: tuple[str, ...], into: Arrays) -> Calls:
        """Gather the parameters of a unit, all in one call."""
        size = self._group.size
        parts = [self._pad(name, self.params[name]) for name in names]
        flat = np.concatenate([each.reshape(-1) for each in parts]).astype(self._said_dtype)
        output = np.zeros(size * flat.size, flat.dtype)
        if size == 1:
            output = flat
        else:
            yield call("all_gather_single", self._group, output=output, input=flat)
        rows = output.reshape(size, -1)
        at = 0
        for name, part in zip(names, parts, strict=True):
            pieces = [row[at : at + part.size].reshape(part.shape) for row in rows]
            self._padded_whole[name] = np.concatenate(pieces)
            whole = self._padded_whole[name][: self._rows(name)]
            into[name] = whole.astype(part.dtype)
            at += part.size

    def _gather_again(self, unit: Unit) -> Calls:
        """Gather backwards: from all ranks, or from those over which the unit is kept."""
        if not unit.over:
            yield from self._gather(unit.names, {})
            return
        at = self._group.group_rank(self.rank)
        first = at - at % unit.over
        ranks = self._group.ranks[first : first + unit.over]
        few = replace(self._group, key=str(list(ranks)), name=str(list(ranks)), ranks=ranks)
        wholes = [self._padded_whole[name].reshape(-1) for name in unit.names]
        flat = np.concatenate([np.split(each, unit.over)[at % unit.over] for each in wholes])
        output = np.zeros(unit.over * flat.size, flat.dtype)
        yield call("all_gather_single", few, output=output, input=flat)

    def _pad(self, name: str, part: Array) -> Array:
        most = max(chunks(self._rows(name), self._group.size))
        return pad(part, 0, most)

    def _scatter(self, names: tuple[str, ...], grads: Arrays) -> Calls:
        """Reduce the gradients of a unit, of which the rank keeps its part, all in one call.

            unit of w [5, 2] and b [3] on 2 ranks    rows by torch.chunk: 3 and 2 of w, 2 and 1 of b
            given     [w 0-2, b 0-1 | w 3-4 + 1 row of zeros, b 2 + 1 of zeros]
            output    the half of this rank, summed

        Each rank's part is padded to the longest, for a reduce-scatter gives all the same. The mean
        is taken over all replicas: those that share a part divide by their number once more.
        """
        size, at = self._group.size, self._group.group_rank(self.rank)
        pieces: list[list[Array]] = [[] for _ in range(size)]
        for name in names:
            sizes = chunks(self._rows(name), size)
            for member in range(size):
                piece = self._pad(name, slice_part(grads[name], sizes, member))
                pieces[member].append(piece.reshape(-1))
        reduced = dtype_named(self._said.reduce_dtype)
        given = np.concatenate([each for listed in pieces for each in listed]).astype(reduced)
        output = np.zeros(given.size // size, given.dtype)
        if size == 1:
            output = given
        else:
            yield call("reduce_scatter_single", self._group, output=output, input=given, op="sum")
        mean = output / output.dtype.type(size)
        if self._replicas is not None:
            mean = yield from sum_over(self._replicas, mean)
            mean = mean / mean.dtype.type(self._replicas.size)
        mean = mean.astype(np.float32)
        start, found = 0, {}
        for name in names:
            shape = self._pad(name, self.params[name]).shape
            count = int(np.prod(shape))
            rows = chunks(self._rows(name), size)[at]
            found[name] = mean[start : start + count].reshape(shape)[:rows]
            start += count
        self.add_gradients(found)

    def learn(self, order: TrainStep, x: Array, y: Array) -> Generator[Part, None, Array | None]:
        """Gather unit by unit, compute, gather again, and reduce unit by unit."""
        self.know_loss(order, x, y)
        whole: Arrays = {}
        units = self._units(order.skip)
        for unit in units:
            yield from self._gather(unit.names, whole)
        passed = {name: self.params[name] for name in self.params if name not in whole}
        loss, found = yield from self.compute({**passed, **whole}, order, x, y)
        for name, value in found.items():
            self._kept[name] = self._kept[name] + value if name in self._kept else value
        reached = [each for each in units if all(name in found for name in each.names)]
        yield from self._backward(reached, order)
        return loss

    def _backward(self, units: list[Unit], order: TrainStep) -> Calls:
        """Gather backwards what was given away, one unit ahead, and reduce.

        The root's forward ends last, and so its backward begins first.
        """
        ended, turns = self._turns(units)
        gathered: set[tuple[str, ...]] = set()
        for turn in turns:
            for each in turn:
                at = ended.index(each)
                for unit in (each, *ended[max(0, at - 1) : at]):
                    if unit.resharded and unit.names not in gathered:
                        gathered.add(unit.names)
                        yield from self._gather_again(unit)
            for each in turn:
                if not each.late:
                    yield from self._reduce(each, order)
        for unit in units:
            if unit.late:
                yield from self._reduce(unit, order)
        if order.sync:
            self._kept = {}

    def _turns(self, units: list[Unit]) -> tuple[list[Unit], list[list[Unit]]]:
        """Return the units as their forwards end, and as their backwards begin."""
        wrapped = [each for each in units if not self._is_root(each)]
        root = [each for each in units if self._is_root(each)]
        ended = [*wrapped, *root]
        turns = [[each] for each in reversed(ended)]
        if wrapped and root and self._ends_in(wrapped[-1]):
            turns[:2] = [
                [wrapped[-1], *root]
            ]  # they have one output, and the inner hook comes first
        return ended, turns

    def _ends_in(self, unit: Unit) -> bool:
        """Whether the last layer of the model is that unit."""
        return unit.names[0].partition(".")[0] == self.model.network.layers[-1][0]

    def _is_root(self, unit: Unit) -> bool:
        return unit.names[0].partition(".")[0] not in self._said.modules

    def _reduce(self, unit: Unit, order: TrainStep) -> Calls:
        if order.sync:
            yield from self._scatter(unit.names, {name: self._kept[name] for name in unit.names})

    def clip(self, most: float) -> Calls:
        """Clip by the norm over all ranks: one sum of a number for each parameter."""
        total = yield from sum_partial(self._group, squares(self.grads.values()))
        self.grads = clip_by_norm(self.grads, most, float(np.sqrt(total.sum())))
