"""`DistributedDataParallel`: every rank has the whole model, and gradients are averaged by bucket.

What is said, and when (torch 2.13, measured): with the first synchronised backward one bucket that
holds all gradients; before the next forward the buckets are rebuilt, in the order in which
gradients became ready, and rank 0 tells the others about them; from then on one all_reduce a
bucket. A bucket is closed as soon as it has reached its limit. Gradients are divided by the number
of ranks before they are summed.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from runner.modules.base import Array
from runner.operations.base import Caller, Group, Part
from runner.operations.placement import call
from runner.strategies.alone import Alone
from runner.strategies.base import (
    Arrays,
    Calls,
    Model,
    Strategy,
    TrainStep,
    bookkeeping,
    summed,
)
from runner.vocabulary import WORLD

#: hooks of DistributedDataParallel, and where torch has them
HALF, PLAIN = "fp16_compress_hook", "allreduce_hook"
HOOKS = (PLAIN, HALF)
HOOKS_AT = "torch.distributed.algorithms.ddp_comm_hooks"

MIB = 1024 * 1024
#: the limits of buckets where none is stated, in bytes: of the first, and of the others
FIRST_LIMIT, LIMIT = MIB, 25 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedDataParallel(Strategy):
    """`torch.nn.parallel.DistributedDataParallel`."""

    name = "DistributedDataParallel"
    left_out: ClassVar[Mapping[str, str]] = {
        "comm_hook=bf16_compress_hook": "Gloo refuses it when it is registered: it wants NCCL",
        "comm_hook=powerSGD_hook": "low-rank gradients are not lowered here",
        "comm_hook=batched_powerSGD_hook": "low-rank gradients are not lowered here",
        "comm_hook=post_localSGD_hook": "averaging of weights every few steps is not lowered here",
        "mixed_precision": "its parameters live on a stream of a GPU",
        "delay_all_reduce_named_params": "parameters that are reduced apart are not lowered here",
    }
    process_group: str | None = None
    bucket_cap_mb: float | None = None
    find_unused_parameters: bool = False
    static_graph: bool = False
    broadcast_buffers: bool = True
    gradient_as_bucket_view: bool = False
    init_sync: bool = True
    comm_hook: str | None = None

    @staticmethod
    def read_comm_hook(given: Any) -> str | None:
        """Return the name of a hook. Raises ValueError."""
        if given not in (None, *HOOKS):
            message = f"there is no hook `{given}` here; there are {', '.join(HOOKS)}"
            raise ValueError(message)
        return None if given is None else str(given)

    @property
    def reduced(self) -> str:
        """The hook's dtype."""
        return "float16" if self.comm_hook == HALF else "float32"

    @property
    def where(self) -> str | None:
        """Its process group."""
        return self.process_group

    @property
    def limits(self) -> tuple[int, int]:
        """The limits of the first bucket and of the others, in bytes."""
        if self.bucket_cap_mb is None:
            return FIRST_LIMIT, LIMIT
        stated = int(self.bucket_cap_mb * MIB)
        return stated, stated

    def apply(self, real: Any) -> None:
        """Wrap the module."""
        given = {
            "process_group": None if self.process_group is None else real.handle(self.where),
            "bucket_cap_mb": self.bucket_cap_mb,
            "find_unused_parameters": self.find_unused_parameters,
            "static_graph": self.static_graph,
            "broadcast_buffers": self.broadcast_buffers,
            "gradient_as_bucket_view": self.gradient_as_bucket_view,
            "init_sync": None if self.init_sync else False,  # torch 2.6 does not know it
        }
        wrapped = real.torch.nn.parallel.DistributedDataParallel(
            real.module, **{name: value for name, value in given.items() if value is not None}
        )
        if self.comm_hook is not None:
            hooks = import_module(f"{HOOKS_AT}.default_hooks")
            wrapped.register_comm_hook(None, getattr(hooks, self.comm_hook))
        real.forward = wrapped
        real.without_sync = wrapped.no_sync


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroRedundancyOptimizer(Strategy):
    """`torch.distributed.optim.ZeroRedundancyOptimizer`: each rank steps on its own parameters."""

    name = "ZeroRedundancyOptimizer"
    imports = ("torch.distributed.optim",)

    @property
    def where(self) -> str | None:
        """The world."""
        return None

    def apply(self, real: Any) -> None:
        """Take the place of the optimizer."""
        optim = real.torch.distributed.optim
        kind = real.model.optimizer
        real.optimizer = optim.ZeroRedundancyOptimizer(
            real.module.parameters(),
            optimizer_class=getattr(real.torch.optim, kind.name),
            process_group=real.handle(real.model.where or WORLD),
            **kind.arguments(),
        )


def buckets(sizes: Sequence[tuple[str, int]], limits: tuple[int, int]) -> list[tuple[str, ...]]:
    """Return the names in each bucket; `sizes` are names with bytes, as they get ready."""
    found: list[tuple[str, ...]] = []
    filling: list[str] = []
    held = 0
    for name, size in sizes:
        filling.append(name)
        held += size
        if held >= limits[min(1, len(found))]:
            found.append(tuple(filling))
            filling, held = [], 0
    return [*found, tuple(filling)] if filling else found


def owners(numels: Sequence[tuple[str, int]], ranks: int) -> dict[str, int]:
    """Return who steps on each parameter: the largest first, to the rank that has least so far."""
    load = [0] * ranks
    found = {}
    for name, numel in sorted(numels, key=lambda each: -each[1]):
        owner = load.index(min(load))
        found[name] = owner
        load[owner] += numel
    return found


class DataParallel(Alone):
    """One rank of a model under `DistributedDataParallel`, with or without ZeRO."""

    def __init__(self, model: Model, caller: Caller) -> None:
        """Begin with rank 0's weights, unless it does not send them."""
        self._said: DistributedDataParallel = model.strategy(DistributedDataParallel)
        super().__init__(model, caller)
        self._group: Group = caller.group(self._said.process_group)
        self._zero = model.strategy(ZeroRedundancyOptimizer) is not None
        sizes = [(name, self.params[name].nbytes) for name in model.network.ready()]
        self._synced = 0
        self._used: set[str] = set()
        self._unfinished = False
        if self._said.find_unused_parameters and not self._said.static_graph:
            # filled in the order of the parameters, and reduced from the last bucket to the first
            at_first = [(name, self.params[name].nbytes) for name in model.parameters]
            self._first = self._later = buckets(at_first, self._said.limits)[::-1]
        else:
            self._first = [tuple(reversed(model.parameters))]
            self._later = buckets(sizes, self._said.limits)
        self._rebuilt = self._first is self._later
        self.owner = owners(
            [(name, value.size) for name, value in self.params.items()], self._group.size
        )

    def begin(self) -> Arrays:
        """Return rank 0's weights, where it sends them."""
        if not self._said.init_sync:
            return self.whole
        group = self.caller.group(self._said.process_group)
        return self.whole_of(group.ranks[0])

    def construction(self) -> list[tuple[str, str, int]]:
        """Return what is said when the model is wrapped: sizes, and the weights of rank 0."""
        if not self._said.init_sync:
            return []
        dims = sum(value.ndim for value in self.params.values())
        total = sum(value.size for value in self.params.values())
        return [
            ("all_gather", "int64", 1),
            ("broadcast", "int64", 2 * dims),
            ("broadcast", "float32", total),
        ]

    def learn(self, order: TrainStep, x: Array, y: Array) -> Generator[Part, None, Array | None]:
        """Forward and backward by itself, then the mean of the gradients."""
        if not self._rebuilt and self._synced > (1 if self._said.static_graph else 0):
            self._rebuilt = True
            yield from bookkeeping(self._group, len(self.params) + 1)
            yield from bookkeeping(self._group, len(self._later))
        loss = yield from super().learn(order, x, y)
        if order.sync:
            yield from self._reduce()
            self._used.clear()
        return loss

    def added(self, found: Arrays) -> None:
        """Remember which parameters were used since gradients were last reduced."""
        super().added(found)
        self._used.update(found)

    def _reduce(self) -> Calls:
        used = np.asarray([name in self._used for name in self.params], np.int32)
        kept = dict(self.grads)
        if self._said.static_graph and not self._synced:
            yield call("all_reduce", self._group, tensor=used.copy(), op="sum")
        lacking = [name for name in self.params if name not in self.grads]
        if lacking and not self._said.find_unused_parameters:
            yield from self._stopped(lacking)
            return
        for names in self._later if self._rebuilt else self._first:
            held = [self.grads.get(name, np.zeros_like(self.params[name])) for name in names]
            flat = np.concatenate([each.reshape(-1) for each in held])
            mean = yield from self._mean(flat)
            at = 0
            for name, each in zip(names, held, strict=True):
                self.grads[name] = mean[at : at + each.size].reshape(each.shape)
                at += each.size
        if self._said.find_unused_parameters and not self._said.static_graph:
            counted = yield from summed(self._group, used)
            for name in (
                each for each, count in zip(self.params, counted, strict=True) if not count
            ):
                self.grads.pop(name)  # no rank has used it: its gradient stays what it was
                self.grads |= {name: kept[name]} if name in kept else {}
        self._synced += 1

    def _stopped(self, lacking: Sequence[str]) -> Calls:
        """Reduce up to the first bucket that is never full; gradients stay those of the rank.

        Nothing is said of it before the next forward, which raises.
        """
        self._unfinished = True
        for names in self._later if self._rebuilt else self._first:
            if any(name in lacking for name in names):
                return
            yield from self._mean(np.concatenate([self.grads[each].reshape(-1) for each in names]))

    def refused(self, given: Any) -> str | None:
        """Refuse a forward behind a backward that never ended."""
        if self._unfinished:
            return "the reduction before it never ended, since not every parameter was used"
        return super().refused(given)

    def _mean(self, flat: Array) -> Generator[Part, None, Array]:
        """Divide and sum up, in the dtype of the hook."""
        narrow = flat.astype(self._said.reduced)
        divided = narrow / narrow.dtype.type(self._group.size)
        found = yield from summed(self._group, divided)
        return found.astype(flat.dtype)

    def update(self) -> Calls:
        """Step on everything, or with ZeRO on one's own, which is then broadcast."""
        if not self._zero:
            yield from super().update()
            return
        here = self._group.group_rank(self.rank)
        for name, owner in self.owner.items():
            if owner == here:
                self.stepped(name)
        for owner in range(self._group.size):
            for name in (each for each in self.owner if self.owner[each] == owner):
                tensor = self.params[name].copy()
                yield call("broadcast", self._group, tensor=tensor, group_src=owner)
                self.params[name] = tensor
