"""One rank of a model that is trained, in float32, in the reference.

Its calls are existing operations (:class:`torch_scenarios.operations.base.Part`), so that the
engine lets ranks meet. What it holds after a step is held against its part of what one process has
(:mod:`torch_scenarios.strategies.one_process`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct

from torch_scenarios.errors import DataError
from torch_scenarios.modules.base import Array
from torch_scenarios.operations.base import Caller, Group, Part
from torch_scenarios.operations.placement import Placement, call, encode, layout_name
from torch_scenarios.strategies.checkpoint import Checkpoint
from torch_scenarios.strategies.model import Arrays, Calls, Clip, Model, TrainStep, weights
from torch_scenarios.strategies.one_process import Oracle, charge, clip_by_norm, norm
from torch_scenarios.strategies.tolerance import (
    EPSILON,
    SLACK,
    ULPS,
    Off,
    bound_of,
    choose_directions,
    unequal,
)


class UnequalValue(Struct, frozen=True, kw_only=True):
    """A value that is not what one process has: the first of a model, on one rank.

    Only the first is reported. A gradient that is wrong makes a wrong weight, and that a wrong
    loss; each of them is a consequence, and as a finding would hide the step to look at.
    """

    model: str
    value: str
    prose: str


class Trainee(ABC):
    """One rank of a model, as its strategy lets it compute and call.

    `params` and `grads` are the local tensors, float32, by the names of the parameters.

    A step of training is one step of the language and several calls of torch. So a trainee is a
    generator of calls: it yields a :class:`torch_scenarios.operations.base.Part`, the driver
    carries that out between the ranks, and the generator goes on with what came.

        DistributedDataParallel, two ranks
        rank 0   forward, backward   yield all_reduce(bucket 0)   ...   step
        rank 1   forward, backward   yield all_reduce(bucket 0)   ...   step

    A rank that leaves a call out thereby hangs its peers in the analysis as it does in torch, with
    no rule for it in any strategy.
    """

    def __init__(self, model: Model, caller: Caller) -> None:
        """Begin with the weights that the model states, cut as the strategy cuts them."""
        self.model = model.of_rank(caller.rank)
        self.caller = caller
        self.rank = caller.rank
        self.groups = caller.mesh(model.where) if model.where else (caller.group(None),)
        first = self.groups[0].ranks[0] if self.groups else 0
        self.settle()
        self.whole = weights(model, caller, caller.rank)
        self.params: Arrays = {
            name: self.share(name, value).copy() for name, value in self.begin().items()
        }
        self.buffers: Arrays = model.network.buffers()
        self.grads: Arrays = {}
        self.states: dict[str, dict[str, Any]] = {name: {} for name in self.params}
        self.oracle = Oracle(model, self._read_weights(first))
        #: whether the first value that is not what one process has was told
        self.told = False
        #: the values of which it was noted how closely they are known
        self._noted: set[str] = set()

    def settle(self) -> None:
        """Find out what the rank's part of a parameter depends on."""
        return

    def compute(
        self, params: Arrays, order: TrainStep, x: Array, y: Array
    ) -> Generator[Part, None, tuple[Array, Arrays]]:
        """Go forward and backward with these weights; return the loss and the gradients."""
        network = self.model.coarse.without(order.skip)
        given, saved = network.forward(params, x)
        if self.buffers:
            self.buffers = network.update_buffers(self.buffers, saved)
        loss, dy = self.model.loss.value(given, y)
        _, found = network.backward(params, saved, dy)
        yield from ()
        return loss, found

    def begin(self) -> Arrays:
        """Return the whole weights with which the rank begins."""
        return self.whole

    def _read_weights(self, rank: int) -> Arrays:
        """Return the whole weights that a model states for a rank."""
        if rank == self.rank:
            return self.whole
        return weights(self.model, self.caller, rank, self.whole)

    def share(self, name: str, whole: Array) -> Array:
        """Return this rank's part of a whole parameter, or of its gradient."""
        return whole

    def placements(self, name: str) -> tuple[Placement, ...]:
        """Return how a parameter lies on the mesh; nothing where it is a plain tensor."""
        return ()

    def placements_of_grad(self, name: str) -> tuple[Placement, ...]:
        """Return how the gradient of a parameter lies."""
        return self.placements(name)

    def layouts(self) -> Array:
        """Return in numbers how each parameter lies, and each gradient; see `coded`."""
        names = self.model.parameters
        rows = [encode(self.placements(each) if self._owns(each) else None) for each in names]
        for each in names:
            there = self._visible_grad(each) is not None
            rows.append(encode(self.placements_of_grad(each) if there else None))
        return np.asarray(rows, np.int64)

    def part(self, name: str, known: tuple[Array, Off], more: Off = 0.0) -> tuple[Array, Off]:
        """Return this rank's part of what one process has, and how far it may be off.

        `more` is what the strategy adds to that, of the rank's part.
        """
        whole, off = known
        mine = off if isinstance(off, float) else self.share(name, off)
        return self.share(name, whole), mine + more

    def read_held(self) -> Arrays:
        """Return what the rank holds before step 1, by the names of a scenario."""
        held = {**self.params, **self.buffers}
        found = {f"{self.model.name}.{name}": value.copy() for name, value in held.items()}
        return found | {layout_name(self.model.name): self.layouts()}

    def _owns(self, name: str) -> bool:
        """Return whether the rank holds some of a parameter."""
        return name in self.params

    # ------------------------------------------------------------------ one step

    def plan_step(self, order: TrainStep) -> TrainStep:
        """Return a step as the strategy means it."""
        return order

    def explain_refusal(self, given: Any) -> str | None:
        """Return why torch refuses the step, or None."""
        return None

    def unfit(self, given: Any) -> str | None:
        """Return why the layers and the loss take no input and no target of these shapes, or None.

        What the numbers in them ask for (a row of a table, a class) shows as they are computed.
        """
        order = TrainStep.of(given)
        x, y = np.shape(order.input), np.shape(order.target)
        try:
            if order.batch is not None:
                dim = order.batch.dim
                for name, shape in {"input": x, "target": y}.items():
                    if not -len(shape) <= dim < len(shape):
                        return f"{name} of {list(shape)} has no dimension {dim} to cut a batch from"
                if x[dim] != y[dim]:
                    return None  # torch cuts both by the rows of the input
                x, y = map(np.shape, order.local(self.caller.group, self.rank))
            self.model.loss.fit(self.model.network.without(order.skip).output_shape(x), y)
        except DataError as error:
            return str(error)
        return None

    # A step of training is compared with one process where it is made, and not afterwards.
    #
    # At the end of a program a wrong gradient has become a wrong weight, a wrong loss and a wrong
    # gradient of everything after it, on every rank. Here the first of them is known, with the step
    # and the rank, and which call brought it. One process has taken the same step on the whole
    # batch (`Oracle`), so that "wrong" needs no expectation of the author: data parallelism is
    # meant to change nothing.
    def train(self, given: Mapping[str, Any]) -> Generator[Part, None, dict[str, Any]]:
        """Make the calls of one step; return what the rank holds, and what is unequal."""
        order = self.plan_step(TrainStep.of(given))
        if order.batch is not None:
            count, other = (each.shape[order.batch.dim] for each in (order.input, order.target))
            if count != other:
                message = f"one process cannot train on {count} rows of input and {other} of target"
                raise DataError(message)
        shape = self.model.network.output_shape(np.shape(order.input))
        self.model.loss.fit(shape, np.shape(order.target))
        if order.zero_grad:
            self.forget_gradients()
        x, y = order.local(self.caller.group, self.rank)
        x, y = narrow_floats(x), narrow_floats(y)
        charge(sum(value.size for value in self.whole.values()), x)
        loss = yield from self._learn(order, x, y)
        if order.clip is not None and order.sync:
            yield from self._clip(order.clip)
        if order.step:
            yield from self.update()
        self.oracle.train(order)
        found = self.compare(order, x, y, loss)
        name = self.model.name
        values: dict[str, Any] = {f"{name}.loss": loss, f"{name}.memory": self.memory()}
        values[layout_name(name)] = self.layouts()
        slack: dict[str, Any] = {}
        if loss is not None:
            slack[f"{name}.loss"] = bound_of(loss, *self.loss_own)
        rounded = self.oracle.own
        for each in self.model.parameters:
            grad = self._visible_grad(each)
            values[f"{name}.{each}.grad"] = None if grad is None else grad.copy()
            mine = self.params.get(each)
            values[f"{name}.{each}"] = None if mine is None else mine.copy()
            more = self.bound_rounding(each)
            for key, value, wanted, own in (
                (f"{name}.{each}.grad", grad, rounded.grad(each), more[0]),
                (f"{name}.{each}", mine, rounded.param(each), more[1]),
            ):
                if value is not None and wanted is not None:
                    slack[key] = bound_of(value, *self.part(each, wanted, own))
        kept, off = self._read_buffers()
        notes = self._find_new_notes()
        return {"values": values | kept, "slack": slack | off, "unequal": found, "notes": notes}

    def _clip(self, clip: Clip) -> Calls:
        most = clip.most[self.rank]
        if clip.local:
            self.grads = clip_by_norm(self.grads, most, norm(self.grads.values()))
        else:
            yield from self.clip(most)

    def _learn(self, order: TrainStep, x: Array, y: Array) -> Generator[Part, None, Array | None]:
        """Go forward and backward, off by rounding where the run is one that tries that out."""
        if self.caller.way is not None:
            self._move_weights(self.caller.way)
        loss = yield from self.learn(order, x, y)
        if self.caller.way is not None:
            self._move_gradients(self.caller.way, order)
        return loss

    def _move_weights(self, way: int) -> None:
        """Let each weight be off by last bits, in some direction: half of SLACK times one."""
        for name, value in self.params.items():
            off = SLACK / 2 * EPSILON * np.abs(value) * choose_directions(way, name, value)
            self.params[name] = (value + off).astype(value.dtype)

    def _move_gradients(self, way: int, order: TrainStep) -> None:
        """Let each gradient be off by last bits of what its terms amount to: half of ULPS."""
        for name, value in self.grads.items():
            terms = max(self.oracle.own.terms(order, name), float(np.abs(value).max(initial=0.0)))
            off = ULPS / 2 * EPSILON * terms * choose_directions(way, f"{name}.grad", value)
            self.grads[name] = (value + off).astype(value.dtype)

    def _find_new_notes(self) -> tuple[str, ...]:
        """Return what is known less closely than rounding alone has it, each value once."""
        loose = {name: note for name, note in self.oracle.loose.items() if name not in self._noted}
        self._noted.update(loose)
        return tuple(f"{self.model.name}.{note}" for note in loose.values())

    def _read_buffers(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the buffers of the layers by their names, and how far off rounding brings them."""
        name = self.model.name
        values = {f"{name}.{each}": value.copy() for each, value in self.buffers.items()}
        bounds = {
            f"{name}.{each}": bound_of(value, *self.oracle.own.buffer(each))
            for each, value in self.buffers.items()
            if value.dtype.kind == "f"
        }
        return values, bounds

    # ------------------------------------------------------------------ checkpoints

    def consolidate(self) -> Calls:
        """Make the calls that bring the optimizer's state to the first rank, before it is saved."""
        yield from ()

    def make_shard(self) -> dict[str, Any]:
        """Return what the rank writes: where each part lies in the whole, the part, the state."""
        shapes = self.model.network.shapes()
        parts = {}
        for name in self.params:
            numbers = np.arange(prod(shapes[name])).reshape(shapes[name])
            states = {key: copy_value(value) for key, value in self.states[name].items()}
            parts[name] = self.share(name, numbers), self.params[name].copy(), states
        return {"parts": parts, "trained": self.oracle.copy()}

    @staticmethod
    def join_pieces(model: Model, pieces: Sequence[Mapping[str, Any]]) -> Checkpoint:
        """Return what the ranks have written together."""
        return Checkpoint.of(model, pieces)

    def unreadable(self, saved: Checkpoint) -> str | None:
        """Return why a checkpoint has not what the ranks read, or None; one alone stops all."""
        shapes, written = self.model.network.shapes(), saved.model.network.shapes()
        for name in shapes:
            if name not in written:
                return f"the checkpoint of `{saved.model.name}` has no {name}"
            if shapes[name] != written[name]:
                return (
                    f"{name} is {list(shapes[name])}, and {list(written[name])} in the checkpoint"
                    f" of `{saved.model.name}`"
                )
        return None

    def read(self, saved: Checkpoint) -> dict[str, Any]:
        """Take the rank's own part of a checkpoint; return what it holds then.

        Raises DataError where another optimizer's state was saved.
        """
        if saved.model.optimizer != self.model.optimizer:
            message = (
                "a checkpoint restores the arguments of its optimizer, and those of"
                f" `{saved.model.name}` and `{self.model.name}` differ"
            )
            raise DataError(message)
        for name in self.params:
            self.params[name] = self.share(name, saved.weights[name]).copy()
            self.states[name] = {
                key: self.share(name, value).copy() if hasattr(value, "shape") else value
                for key, value in saved.states[name].items()
            }
        self.oracle.load(saved.model, saved.trained)
        return self.read_weights()

    def read_weights(self) -> dict[str, Any]:
        """Return the weights that the rank holds, and how far off rounding may bring them."""
        name = self.model.name
        values: dict[str, Any] = {}
        slack: dict[str, Any] = {}
        for each in self.model.parameters:
            mine = self.params.get(each)
            values[f"{name}.{each}"] = None if mine is None else mine.copy()
            if mine is not None:
                known = self.part(each, self.oracle.own.param(each))
                slack[f"{name}.{each}"] = bound_of(mine, *known)
        kept, off = self._read_buffers()
        return {"values": values | kept, "slack": slack | off}

    def forget_gradients(self) -> None:
        """`zero_grad`: there are none."""
        self.grads = {}

    def _visible_grad(self, name: str) -> Array | None:
        """Return what `.grad` is on this rank; None where it is None."""
        return self.grads.get(name)

    def comparable_grad(self, name: str) -> Array | None:
        """Return the gradient as it is held against one process's; None where it cannot be."""
        return self._visible_grad(name)

    @abstractmethod
    def learn(self, order: TrainStep, x: Array, y: Array) -> Generator[Part, None, Array | None]:
        """Go forward and backward; return the loss, where the rank knows it."""

    def clip(self, most: float) -> Calls:
        """Clip the gradients, of which each rank has all."""
        self.grads = clip_by_norm(self.grads, most, norm(self.grads.values()))
        yield from ()

    def update(self) -> Calls:
        """Let the optimizer step on what the rank holds."""
        for name in self.params:
            self.step_parameter(name)
        yield from ()

    def step_parameter(self, name: str) -> None:
        """Let the optimizer step on one parameter, if it has a gradient."""
        grad = self.grads.get(name)
        if grad is not None:
            optimizer = self.model.optimizer
            with np.errstate(all="ignore"):
                self.params[name] = optimizer.step(self.params[name], grad, self.states[name])

    def add_gradients(self, found: Arrays) -> None:
        """Add gradients to those that there are."""
        for name, value in found.items():
            self.grads[name] = self.grads[name] + value if name in self.grads else value

    def memory(self) -> Array:
        """Return the bytes of parameters, gradients and the optimizer's state, at rest."""
        grads = [self._visible_grad(name) for name in self.model.parameters]
        kept = [
            sum(value.nbytes for value in self.params.values()),
            sum(each.nbytes for each in grads if each is not None),
            sum(map(self._state_bytes, self.states.values())),
        ]
        return np.asarray(kept, np.int64)

    @staticmethod
    def _state_bytes(state: Mapping[str, Any]) -> int:
        """Return the bytes of what an optimizer keeps; the count of its steps is a float32."""
        return sum(each.nbytes if hasattr(each, "nbytes") else 4 for each in state.values())

    # ------------------------------------------------------------------ against one process

    @property
    def departure(self) -> str | None:
        """Return why the strategy, as it is stated, is not one process; None where it is."""
        return None

    def bound_rounding(self, name: str) -> tuple[Off, Off]:
        """Return how far more a gradient and a parameter may be off than those of one process."""
        return 0.0, 0.0

    def compare(
        self, order: TrainStep, x: Array, y: Array, loss: Array | None
    ) -> UnequalValue | None:
        """Return the first value that is not what one process has; once a model."""
        if self.told:
            return None
        for value, mine, wanted in self.pairs(order, x, y, loss):
            prose = unequal(mine, *wanted)
            if prose is not None:
                self.told = True
                name = f"{self.model.name}.{value}"
                leaves = self.model.network.leaves()
                layer = next((label for label, leaf in leaves if leaf.over_batch), None)
                if layer is not None and order.batch is not None:
                    prose += f" (`{layer}` normalises by the rows that the rank has, not by all)"
                elif self.departure is not None:
                    prose += f" ({self.departure})"
                return UnequalValue(model=self.model.name, value=name, prose=f"{name} {prose}")
        return None

    def pairs(
        self, order: TrainStep, x: Array, y: Array, loss: Array | None
    ) -> Generator[tuple[str, Array, tuple[Array, Off]], None, None]:
        """Yield the values of this rank with what one process has, in the order of their making."""
        if loss is not None:
            yield "loss", loss, self.loss_before
        for name in self.model.parameters:
            grad, wanted = self.comparable_grad(name), self.oracle.grad(name)
            if order.sync and grad is not None and wanted is not None:
                off = self.bound_rounding(name)[0]
                yield f"{name}.grad", grad, self.part(name, wanted, off)
        for name in self.model.parameters:
            if self._owns(name):
                off = self.bound_rounding(name)[1]
                yield name, self.params[name], self.part(name, self.oracle.param(name), off)
        for name, held in self.buffers.items():
            yield name, held, self.oracle.buffer(name)

    #: what one process has for a loss of this rank's rows, and its tolerance; set by `learn`
    loss_before: tuple[Array, Off] = (np.zeros(()), 0.0)
    #: and what it has with the loss and the optimizer of the ranks
    loss_own: tuple[Array, Off] = (np.zeros(()), 0.0)

    def know_loss(self, order: TrainStep, x: Array, y: Array) -> None:
        """Ask one process, before it steps, for the loss of these rows."""
        self.loss_before, self.loss_own = self.oracle.loss(x, y), self.oracle.own.loss(x, y)


def copy_value(value: Any) -> Any:
    """Return an array that later steps do not change, or the number itself."""
    return value.copy() if hasattr(value, "copy") else value


def narrow_floats(value: Any) -> Array:
    """Return an array, floats in float32."""
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def widen_floats(array: Array) -> Array:
    """Return an array, floats in float64."""
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def sum_over(group: Group, value: Array, op: str = "sum") -> Generator[Part, None, Array]:
    """Reduce an array over a group, in its dtype."""
    result = value.copy()
    yield call("all_reduce", group, tensor=result, op=op)
    return result


def sum_partial(group: Group, value: Array) -> Generator[Part, None, Array]:
    """Sum up what is Partial in a DTensor: one rank has the sum, and calls nothing."""
    if group.size == 1:
        return value
    return (yield from sum_over(group, value))


def slice_part(value: Array, sizes: Sequence[int], at: int, axis: int = 0) -> Array:
    """Return part `at` of an array that is cut into parts of these sizes."""
    start = sum(sizes[:at])
    index = [slice(None)] * value.ndim
    index[axis] = slice(start, start + sizes[at])
    return value[tuple(index)]
