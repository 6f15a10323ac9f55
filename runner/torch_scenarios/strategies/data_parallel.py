"""`DistributedDataParallel`: every rank has the whole model, and gradients are averaged by bucket.

What is said, and when (torch 2.13, measured): with the first synchronised backward one bucket that
holds all gradients; before the next forward the buckets are rebuilt, in the order in which
gradients became ready, and rank 0 tells the others about them; from then on one all_reduce a
bucket. A bucket is closed as soon as it has reached its limit. Gradients are divided by the number
of ranks before they are summed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from math import isfinite, prod
from typing import Any, ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from torch_scenarios.modules import Sequential
from torch_scenarios.modules.base import Array
from torch_scenarios.modules.optimizer import UpdateBound
from torch_scenarios.operations.base import Caller, Group, Part
from torch_scenarios.operations.placement import call
from torch_scenarios.operations.save import broadcast_value
from torch_scenarios.strategies.alone import SingleRank
from torch_scenarios.strategies.checkpoint import Checkpoint
from torch_scenarios.strategies.comm_hooks import Bucket, Hook, hook_of
from torch_scenarios.strategies.model import (
    Arrays,
    Calls,
    LeftOutError,
    Model,
    Strategy,
    TrainStep,
    weights,
)
from torch_scenarios.strategies.one_process import charge
from torch_scenarios.strategies.tolerance import Off, measure_distance, shake
from torch_scenarios.strategies.trainee import sum_over, widen_floats
from torch_scenarios.vocabulary import WORLD

MIB = 1024 * 1024
#: the limits of buckets where none is stated, in bytes: of the first, and of the others
FIRST_LIMIT, LIMIT = MIB, 25 * MIB


class JoinContext(Struct, frozen=True, kw_only=True):
    """The arguments of `DistributedDataParallel.join`, the context of a rank that may end early.

    >>> JoinContext().divide_by_initial_world_size
    True

    By default gradients are divided by all ranks, those that have ended too, so that the last
    batches count less. With False, by those that still have input.
    """

    divide_by_initial_world_size: bool = True
    enable: bool = True
    throw_on_early_termination: bool = False


class DistributedDataParallel(Strategy, frozen=True, kw_only=True):
    """`torch.nn.parallel.DistributedDataParallel`.

    >>> DistributedDataParallel().limits, DistributedDataParallel(bucket_cap_mb=2.0).limits
    ((1048576, 26214400), (2097152, 2097152))

    Gradients are averaged while the backward goes on: a bucket is all-reduced once its gradients
    are there. What is averaged are gradients alone. Losses, counts of samples and statistics of
    layers are each rank's own, and a script that wants their mean has to make the call itself.
    """

    name = "DistributedDataParallel"
    left_out: ClassVar[Mapping[str, str]] = {
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
    comm_hook: Hook | None = None
    #: every step is taken within `with net.join(...):`, which the step `join` leaves
    join: JoinContext | None = None

    def __post_init__(self) -> None:
        """Refuse a size of buckets that is no number of bytes, with ValueError."""
        if self.bucket_cap_mb is not None and not isfinite(self.bucket_cap_mb):
            message = f"`bucket_cap_mb` is a number of MiB, and not {self.bucket_cap_mb}"
            raise ValueError(message)

    @staticmethod
    def read_join(given: Any) -> JoinContext | None:
        """Return the arguments of the context. Raises ValueError and TypeError."""
        if given is None:
            return None
        known = JoinContext.__struct_fields__
        if not isinstance(given, Mapping):
            message = "write its arguments: `join: {divide_by_initial_world_size: false}`"
            raise TypeError(message)
        for name, value in given.items():
            if name not in known:
                message = f"it has no argument `{name}`; there are {', '.join(known)}"
                raise ValueError(message)
            if not isinstance(value, bool):
                message = f"`{name}` is true or false"
                raise TypeError(message)
        return JoinContext(**given)

    @staticmethod
    def read_comm_hook(given: Any) -> Hook | None:
        """Return a hook. Raises ValueError, TypeError and LeftOutError."""
        return hook_of(given)

    @property
    def reduce_dtype(self) -> str:
        """The hook's dtype."""
        return "float32" if self.comm_hook is None else self.comm_hook.reduce_dtype

    @property
    def where(self) -> str | None:
        """Its process group."""
        return self.process_group

    @property
    def groups(self) -> tuple[str, ...]:
        """Its process group, and those of the hook."""
        own = () if self.process_group is None else (self.process_group,)
        return own if self.comm_hook is None else (*own, *self.comm_hook.groups)

    def find_mismatch(self, network: Sequential) -> str | None:
        """Raise LeftOutError where the hook does not go with the buckets of the layers."""
        if self.comm_hook is not None:
            sizes = [(name, 4 * prod(shape)) for name, shape in network.shapes().items()]
            counts = self.find_unused_parameters and not self.static_graph
            why = self.comm_hook.find_mismatch(
                len(buckets(sizes[::-1], self.limits)), counts=counts
            )
            if why is not None:
                raise LeftOutError(why)
        return None

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
            self.comm_hook.register(real, wrapped, given["process_group"])
        real.forward = wrapped
        if self.join is not None:
            real.collective_post = RealJoin(real, wrapped, asdict(self.join))
        real.without_sync = wrapped.no_sync


class RealJoin:
    """torch's own context for ranks with uneven inputs, over a model and, with ZeRO, its optimizer.

    It is entered anew behind each end, so that the next `train` is in one.

        with Join([ddp]):            rank 0   3 batches
            for batch in batches:    rank 1   2 batches, then it shadows: it makes the calls of
                ...                           rank 0's third step, with zeros

    `torch.distributed.algorithms.join.Join`. Without it rank 0's third all_reduce meets no rank 1.
    """

    def __init__(self, real: Any, wrapped: Any, given: Mapping[str, bool]) -> None:
        """Keep what the context is made of."""
        self._real, self._wrapped, self._given = real, wrapped, given
        self._context: Any = None
        self._broken_off = False

    def enter(self) -> None:
        """Enter the context, unless the rank is in it."""
        self._broken_off = False
        if self._context is not None:
            return
        join = import_module("torch.distributed.algorithms.join").Join
        optimizer = self._real.optimizer
        zero = hasattr(optimizer, "join_hook")
        self._context = join([self._wrapped, *([optimizer] if zero else [])], **self._given)
        self._context.__enter__()

    def leave(self) -> None:
        """Leave it at its end, unless an exception has left it; who has no input was in it."""
        if not self._broken_off:
            self.enter()
            context, self._context = self._context, None
            context.__exit__(None, None, None)
        self._broken_off = False

    def break_off(self) -> None:
        """Leave it by an exception: nothing is said."""
        self._context, self._broken_off = None, True


class ZeroRedundancyOptimizer(Strategy, frozen=True, kw_only=True):
    """`torch.distributed.optim.ZeroRedundancyOptimizer`: each rank steps on its own parameters.

        gradients   averaged by DistributedDataParallel on all ranks
        step        rank 0: up.weight      rank 1: down.weight     states are on these ranks alone
        broadcast   each parameter from its owner, so that all ranks have all again

    Which rank owns a parameter is torch's greedy rule: the largest first, to the rank that has
    least.

    >>> owners([("a", 5), ("b", 3), ("c", 3)], ranks=2)
    {'a': 0, 'b': 1, 'c': 1}
    """

    name = "ZeroRedundancyOptimizer"
    imports = ("torch.distributed.optim",)
    left_out: ClassVar[Mapping[str, str]] = {
        "params": "it has the parameters of its model here, and no others",
        "optimizer_class": "it is the model's own `optimizer` here",
        "process_group": "it works over the group of its DistributedDataParallel here",
        "parameters_as_bucket_view": "one broadcast for each rank in place of one for each "
        "parameter is not lowered here",
        "overlap_with_ddp": "a step that begins in the backward pass is not lowered here",
        "defaults": "arguments of the optimizer are written under `optimizer` here",
        **dict.fromkeys(
            (
                *("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "foreach"),
                *("capturable", "differentiable", "fused", "momentum", "dampening", "nesterov"),
            ),
            "arguments of the optimizer are written under `optimizer` here",
        ),
    }

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
        real.state_of_all = RealStates(real)


class RealStates:
    """The state of a ZeroRedundancyOptimizer as a checkpoint has it, by the names of parameters.

    Each rank has the state of its own parameters. `consolidate_state_dict` brings all of it to rank
    0, and is a collective: a rank that does not call it, since only rank 0 saves, hangs the others.
    """

    def __init__(self, real: Any) -> None:
        """Know the order of the parameters: torch numbers them."""
        self._torch, self._zero = real.torch, real.optimizer
        self._names = [name for name, _ in real.module.named_parameters()]

    def collect(self) -> dict[str, Any] | None:
        """Return the state of all ranks on the first of them; None on the others. All call it."""
        with weights_only(self._torch):
            self._zero.consolidate_state_dict(to=0)
        if self._zero.rank != 0:
            return None
        whole = self._zero.state_dict()
        return {
            "state": {self._names[at]: state for at, state in whole["state"].items()},
            "param_groups": [
                {**group, "params": [self._names[at] for at in group["params"]]}
                for group in whole["param_groups"]
            ],
        }

    def empty(self, written: Mapping[str, Any]) -> dict[str, Any]:
        """Return tensors for the state that a checkpoint has, by what its metadata says of it."""
        found: dict[str, Any] = {}
        for name in self._names:
            before = f"optimizer.state.{name}."
            found[name] = {
                key.removeprefix(before): self._torch.empty(each.size, dtype=each.properties.dtype)
                for key, each in written.items()
                if key.startswith(before) and hasattr(each, "size")
            }
        return {"state": {name: state for name, state in found.items() if state}}

    def load(self, kept: Mapping[str, Any]) -> None:
        """Let each rank keep the state of its parameters."""
        numbered = {self._names.index(name): state for name, state in kept["state"].items()}
        groups = self._torch.optim.Optimizer.state_dict(self._zero)["param_groups"]
        self._zero.load_state_dict({"state": numbered, "param_groups": groups})


@contextmanager
def weights_only(torch: Any) -> Iterator[None]:
    """Let `torch.load` know no names but those of tensors: ZeRO asks it for all that there are."""
    load = torch.load
    torch.load = lambda *args, **given: load(*args, **{**given, "weights_only": True})
    try:
        yield
    finally:
        torch.load = load


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
    """Return who steps on each parameter: the largest first, to the rank that has least so far.

    >>> owners([("a", 4), ("b", 3), ("c", 2), ("d", 2)], ranks=2)
    {'a': 0, 'b': 1, 'c': 1, 'd': 0}
    """
    load = [0] * ranks
    found = {}
    for name, numel in sorted(numels, key=lambda each: -each[1]):
        owner = load.index(min(load))
        found[name] = owner
        load[owner] += numel
    return found


class NoInputError(Exception):
    """Training ends early: a rank has no more input, and torch is to raise where that is seen.

    It is `throw_on_early_termination` of `Join`: every rank raises at the step that one rank lacks.
    """


class DataParallel(SingleRank):
    """One rank of a model under `DistributedDataParallel`, with or without ZeRO.

    It divides gradients by the number of ranks and sums them, bucket by bucket, in the order in
    which the backward has them. A bucket is full with its limit: 1 MiB for the first, 25 MiB for
    the others.

    >>> buckets([("down.weight", 600), ("down.bias", 8), ("up.weight", 600)], limits=(500, 1000))
    [('down.weight',), ('down.bias', 'up.weight')]

    All ranks must have the same buckets. A parameter that one rank does not use leaves its bucket
    unfinished there, and the peers wait in that all_reduce, unless `find_unused_parameters` is set.
    """

    def __init__(self, model: Model, caller: Caller) -> None:
        """Begin with rank 0's weights, unless it does not send them."""
        self._said: DistributedDataParallel = model.strategy(DistributedDataParallel)
        super().__init__(model, caller)
        self._group: Group = caller.group(self._said.process_group)
        self._zero = model.strategy(ZeroRedundancyOptimizer) is not None
        self._synced = 0
        self._used: set[str] = set()
        self._unfinished = False
        context = self._said.join
        self._context = context if context is not None and context.enable else None
        #: how often the context was left, and whether an exception has left it
        self._joins, self._broken_off = 0, False
        #: the number by which gradients are divided before they are summed
        self._divisor = self._group.size
        #: what the ranks of the model have in common
        self._shared = model.moments
        hook = self._said.comm_hook
        self._hook = None if hook is None else hook.side(self._group, caller, self._shared)
        #: where a hook makes more of what rounding leaves: the rank's own gradients in float64, how
        #: far off those are that the hook returns, and what the optimizer makes of that
        self._exact: Arrays = {}
        self._off_grads: Arrays = {}
        self._reached: dict[str, UpdateBound] = {}
        if self._said.find_unused_parameters and not self._said.static_graph:
            # filled in the order of the parameters, and reduced from the last bucket to the first
            at_first = [(name, self.params[name].nbytes) for name in model.parameters]
            self._buckets = buckets(at_first, self._said.limits)[::-1]
            self._rebuilt = True
        else:
            self._buckets = [tuple(reversed(model.parameters))]
            self._rebuilt = False
        #: the parameters in the order in which gradients got ready in the first synchronised step
        self._order: tuple[str, ...] = ()
        #: whether the step before synchronised: the forward behind one that did not sends nothing
        self._synced_before = True
        self.owner = owners(
            [(name, value.size) for name, value in self.params.items()], self._group.size
        )

    def begin(self) -> Arrays:
        """Return rank 0's weights, where it sends them."""
        if not self._said.init_sync:
            return self.whole
        group = self.caller.group(self._said.process_group)
        return weights(self.model, self.caller, group.ranks[0])

    # ------------------------------------------------------------------ one step

    def plan_step(self, order: TrainStep) -> TrainStep:
        """Return the step with the part of the ranks that have rows, where gradients count it.

        Divided by the initial world size, a rank without input is one whose gradients are zero.
        """
        sizes = order.batch.sizes if order.batch is not None else None
        if self._context is None or not self._context.divide_by_initial_world_size or not sizes:
            return order
        return replace(order, weight=sum(map(bool, sizes)) / self._group.size)

    def train(self, given: Mapping[str, Any]) -> Generator[Part, None, dict[str, Any]]:
        """Make the calls of one step, unless another rank has no more input and that ends it."""
        self._broken_off = False
        try:
            return (yield from super().train(given))
        except NoInputError as end:
            self._broken_off = True
            return {"raises": str(end)}

    def learn(self, order: TrainStep, x: Array, y: Array) -> Generator[Part, None, Array | None]:
        """Forward and backward by itself, then the mean of the gradients."""
        if self._context is not None:
            active = yield from sum_over(self._group, np.ones(1, np.float32))
            if not self._context.divide_by_initial_world_size:
                self._divisor = int(active[0])
            if self._context.throw_on_early_termination:
                ended = yield from sum_over(self._group, np.zeros(1, np.float32))
                if ended[0]:
                    message = (
                        "Detected at least one rank that exhausted inputs. Throwing across all"
                        " ranks."
                    )
                    raise NoInputError(message)
        yield from self._rebuild()
        if self._sends_buffers:
            src = 0
            if self._context is not None:  # the first rank may have no input any more
                src = yield from self._find_last(candidate=True)
            yield from self._take(src, self.buffers)
        self._synced_before = order.sync
        if self._context is not None:
            yield from sum_over(self._group, np.full(1, order.sync, np.float32))
        loss = yield from super().learn(order, x, y)
        if self._rounds:
            self._know_rounding(order, x, y, loss)
        if order.sync:
            yield from self._reduce()
            self._used.clear()
        return loss

    def add_gradients(self, found: Arrays) -> None:
        """Remember which parameters were used since gradients were last reduced."""
        super().add_gradients(found)
        self._used.update(found)

    @property
    def _sends_buffers(self) -> bool:
        """Whether a forward begins with the buffers of one rank."""
        return self._said.broadcast_buffers and bool(self.buffers) and self._synced_before

    def _take(self, src: int, *held: Arrays) -> Calls:
        """Take what one rank holds, a call a dtype."""
        for dtype in dict.fromkeys(value.dtype for each in held for value in each.values()):
            parts = [
                (each, name)
                for each in held
                for name, value in each.items()
                if value.dtype == dtype
            ]
            flat = np.concatenate([each[name].reshape(-1) for each, name in parts])
            yield call("broadcast", self._group, tensor=flat, group_src=src)
            at = 0
            for each, name in parts:
                size, shape = each[name].size, each[name].shape
                each[name] = flat[at : at + size].reshape(shape)
                at += size

    def _find_last(self, *, candidate: bool) -> Generator[Part, None, int]:
        """Return the last of the ranks that are candidates, by its number in the group."""
        here = self._group.group_rank(self.rank) if candidate else -1
        found = yield from sum_over(self._group, np.full(1, here, np.int64), "max")
        return max(0, int(found[0]))

    def _rebuild(self) -> Calls:
        """Make the buckets anew, once, in the order that the first rank has seen."""
        if self._rebuilt or self._synced <= (1 if self._said.static_graph else 0):
            return
        self._rebuilt = True
        names = list(self.params)
        sizes = [(name, self.params[name].nbytes) for name in self._order]
        mine = buckets(sizes, self._said.limits)
        numbers = [names.index(name) for bucket in mine for name in bucket]
        order = np.asarray([*numbers, len(mine)], np.int32)
        yield call("broadcast", self._group, tensor=order, group_src=0)
        lengths = np.resize(np.asarray(list(map(len, mine)), np.int32), int(order[-1]))
        yield call("broadcast", self._group, tensor=lengths, group_src=0)
        ends = np.cumsum(lengths)
        self._buckets = [
            tuple(names[number] for number in order[end - length : end])
            for end, length in zip(ends, lengths, strict=True)
        ]

    def _reduce(self) -> Calls:
        used = np.asarray([name in self._used for name in self.params], np.int32)
        kept = dict(self.grads)
        if self._said.static_graph and not self._synced:
            yield call("all_reduce", self._group, tensor=used.copy(), op="sum")
        lacking = [name for name in self.params if name not in self.grads]
        if lacking and not self._said.find_unused_parameters:
            yield from self._stop(lacking)
            return
        for number, names in enumerate(self._buckets):
            held = [self.grads.get(name, np.zeros_like(self.params[name])) for name in names]
            mean = yield from self._mean(number, held)
            at = 0
            for name, each in zip(names, held, strict=True):
                self.grads[name] = mean[at : at + each.size].reshape(each.shape)
                at += each.size
        if self._counts_used:
            counted = yield from sum_over(self._group, used)
            for name in (
                each for each, count in zip(self.params, counted, strict=True) if not count
            ):
                self.grads.pop(name)  # no rank has used it: its gradient stays what it was
                self.grads |= {name: kept[name]} if name in kept else {}
        self._order = self._order or self.model.network.ready()
        self._synced += 1

    @property
    def _counts_used(self) -> bool:
        """Whether each backward ends with the number of ranks that used each parameter."""
        return self._said.find_unused_parameters and not self._said.static_graph

    def _stop(self, lacking: Sequence[str]) -> Calls:
        """Reduce up to the first bucket that is never full; gradients stay those of the rank.

        Nothing is said of it before the next forward, which raises.
        """
        self._unfinished = True
        for number, names in enumerate(self._buckets):
            if any(name in lacking for name in names):
                return
            yield from self._mean(number, [self.grads[each] for each in names])

    def explain_refusal(self, given: Any) -> str | None:
        """Refuse a forward behind a backward that never ended, and a first one under no_sync.

        torch fails there on an assertion of its reducer (`expect_autograd_hooks_`): a static graph
        is learnt in the first backward that is synchronised.
        """
        if self._unfinished:
            return "the reduction before it never ended, since not every parameter was used"
        if self._said.static_graph and not self._synced and not given["sync"]:
            return "static_graph is learnt in the first backward, which cannot be one under no_sync"
        return super().explain_refusal(given)

    def _mean(self, number: int, held: Sequence[Array]) -> Generator[Part, None, Array]:
        """Divide and sum up the gradients of a bucket, or let the hook do it."""
        flat = np.concatenate([each.reshape(-1) for each in held])
        if self._hook is None:
            return (yield from sum_over(self._group, flat / flat.dtype.type(self._divisor)))
        names, shapes = self._buckets[number], tuple(each.shape for each in held)
        exact = None
        if self._rounds:
            listed = zip(names, held, strict=True)
            exact = np.concatenate(
                [self._exact.get(name, grad).reshape(-1) for name, grad in listed]
            )
        bucket = Bucket(
            number=number, buckets=len(self._buckets), shapes=shapes, flat=flat, exact=exact
        )
        made: Array = yield from self._hook.mean(bucket)
        if self._hook.off is not None:
            self._off_grads |= zip(names, bucket.gradients(self._hook.off), strict=True)
        return made

    # ------------------------------------------------------------------ what a hook makes more of

    @property
    def _rounds(self) -> bool:
        """Whether the hook makes more of what rounding leaves than a mean does."""
        return self._hook is not None and self._hook.rounds

    def _know_rounding(self, order: TrainStep, x: Array, y: Array, loss: Array | None) -> None:
        """Compute the rank's gradients once more, in float64, and how far its loss may be off.

        That is from weights that are off by what they may be: the last bits, and what the hook has
        made of rounding before.
        """
        network = self.model.network.without(order.skip)
        params = {
            name: shake(value.astype(np.float64), self._off_weight(name))
            for name, value in self.params.items()
        }
        charge(sum(value.size for value in params.values()), x)
        given, saved = network.forward(params, widen_floats(x))
        shaken, dy = self.model.loss.value(given, widen_floats(y))
        for name, value in network.backward(params, saved, dy)[1].items():
            self._exact[name] = self._exact.get(name, 0.0) + value
        if self._reached and loss is not None:
            more = measure_distance(loss, shaken)
            known = self.loss_before, self.loss_own
            self.loss_before, self.loss_own = ((value, off + more) for value, off in known)

    def _off_weight(self, name: str) -> Array | float:
        """Return how far off a weight may be by what the hook made more of."""
        reached = self._reached.get(name)
        return 0.0 if reached is None else reached.off

    def forget_gradients(self) -> None:
        """What they are off by goes with them."""
        super().forget_gradients()
        self._exact.clear()
        self._off_grads.clear()

    def step_parameter(self, name: str) -> None:
        """Let the optimizer step; know how far it may lead where the hook made more of rounding."""
        before, grad = self.params[name], self.grads.get(name)
        super().step_parameter(name)
        if self._rounds and grad is not None:
            off = self._off_grads.get(name, np.zeros(grad.shape))
            states, known = self.states[name], self._reached.get(name)
            reached = self.model.optimizer.reach(before, grad, off, states, known)
            self._reached[name] = self._shared["reached", name] = reached

    def bound_rounding(self, name: str) -> tuple[Off, Off]:
        """Return how far the hook may bring the gradient by rounding, and the weight behind it."""
        return self._off_grads.get(name, 0.0), self._off_weight(name)

    def comparable_grad(self, name: str) -> Array | None:
        """Return nothing where a hook leaves the gradients those of some ranks."""
        if self._hook is not None and not self._hook.of_all:
            return None
        return super().comparable_grad(name)

    @property
    def departure(self) -> str | None:
        """Why the hook does not return the mean."""
        return None if self._hook is None else self._hook.departure

    def update(self) -> Calls:
        """Step on everything, or with ZeRO on one's own, which is then broadcast."""
        if not self._zero:
            yield from super().update()
            return
        here = self._group.group_rank(self.rank)
        for name, owner in self.owner.items():
            if owner == here:
                self.step_parameter(name)
        for owner in range(self._group.size):
            for name in (each for each in self.owner if self.owner[each] == owner):
                tensor = self.params[name].copy()
                yield call("broadcast", self._group, tensor=tensor, group_src=owner)
                self.params[name] = tensor
                if owner != here and ("reached", name) in self._shared:
                    self._reached[name] = self._shared["reached", name]

    # ------------------------------------------------------------------ checkpoints

    def consolidate(self) -> Calls:
        """With ZeRO each rank but the first sends its state to all; the first keeps it."""
        if self._zero:
            for rank in self._group.ranks[1:]:
                yield from broadcast_value(self._group, self.rank, "state", root=rank)

    def read(self, saved: Checkpoint) -> dict[str, Any]:
        """Take a checkpoint; with ZeRO keep the state of the rank's own parameters."""
        found = super().read(saved)
        self._reached.clear()
        here = self._group.group_rank(self.rank)
        if self._zero:
            self.states = {
                name: state if self.owner[name] == here else {}
                for name, state in self.states.items()
            }
        return found

    # ------------------------------------------------------------------ a rank without input

    def join(self) -> Generator[Part, None, dict[str, Any]]:
        """Leave the context: make the calls of those that still train, and of the end."""
        if self._context is None or self._broken_off:
            self._broken_off = False
            return {"values": {}, "slack": {}}
        last = True
        while (yield from sum_over(self._group, np.zeros(1, np.float32)))[0]:
            if self._context.throw_on_early_termination:
                yield from sum_over(self._group, np.ones(1, np.float32))
                return {"raises": f"Rank {self.rank} exhausted all inputs."}
            yield from self._shadow()
            last = False
        here = self._group.group_rank(self.rank)
        src = yield from self._find_last(candidate=last)
        # one process is where the rank is that came last: the others have not seen its steps
        known = self._shared
        if src == here:
            known["join", self._joins, src] = self.oracle
        yield from self._take(
            src, self.params, self.buffers if self._said.broadcast_buffers else {}
        )
        self.oracle = known.get(("join", self._joins, src), self.oracle).copy()
        self._joins += 1
        return self.read_weights()

    def _shadow(self) -> Calls:
        """Make the calls of a step that other ranks take."""
        yield from self._rebuild()
        if self._sends_buffers:
            yield from self._take((yield from self._find_last(candidate=False)), self.buffers)
        synced = yield from sum_over(self._group, np.zeros(1, np.float32))
        self._synced_before = bool(synced[0])
        if synced[0]:
            for number, names in enumerate(self._buckets):
                yield from self._mean(number, [np.zeros_like(self.params[name]) for name in names])
            if self._said.find_unused_parameters:
                yield from sum_over(self._group, np.zeros(len(self.params), np.int32))
            # torch takes the order of the parameters where it has seen none
            self._order = self._order or tuple(self.params)
            self._synced += 1
        if self._zero:
            yield from self.update()
