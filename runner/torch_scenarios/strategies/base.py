"""What a training strategy is, and one rank of a model that is trained by one.

Two references meet here. *One process* trains the whole batch in float64; a *trainee* is one rank,
in float32, whose calls are existing operations (:class:`torch_scenarios.operations.base.Part`), so
that the engine lets ranks meet. What a rank holds after a step is held against its part of what one
process has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from copy import copy
from math import prod
from typing import Any, ClassVar, TypeAlias
from zlib import crc32

import ml_dtypes
import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from torch_scenarios.errors import DataError, Mark, Marked
from torch_scenarios.expressions.values import Form
from torch_scenarios.limits import MATMUL, account
from torch_scenarios.modules import Sequential
from torch_scenarios.modules.base import Array, Declared
from torch_scenarios.modules.loss import Loss
from torch_scenarios.modules.optimizer import Optimizer, Reached
from torch_scenarios.modules.sequential import Coarse, coarse
from torch_scenarios.operations.base import Caller, Group, Part
from torch_scenarios.operations.placement import (
    LAYOUTS,
    Placement,
    call,
    chunks,
    encode,
    layout_name,
)

Arrays: TypeAlias = dict[str, Array]
#: how far a value may be off: as a whole, or each element
Off: TypeAlias = float | Array
Calls: TypeAlias = Generator[Part, None, None]

#: multiplications of each weight with each row: once forward, twice backward
_STEP_PRODUCTS = 3

#: units of work of a step of one rank, whatever its sizes: 200 to 340 us
_STEP_WORK = 80_000

#: how often a step goes over all weights: gradients, an optimizer, what is compared and copied
_STEP_PASSES = 16

#: bytes of a weight in a moment: weight, gradient and two states, in float64, float32, float64
_MOMENT_BYTES = 80


# -------------------------------------------------------------------------------------------------
# What a file says of a model and of its strategy.


class Strategy(Declared, frozen=True):
    """One entry of `parallel:`, by torch's name and arguments, which are its fields."""

    name: ClassVar[str]
    #: modules of torch's that have to be imported for it
    imports: ClassVar[tuple[str, ...]] = ()
    #: arguments of torch's, or values (`schedule=ScheduleDualPipeV`), that are left out -> why
    left_out: ClassVar[Mapping[str, str]] = {}

    @property
    def broken(self) -> Mapping[str, str]:
        """Versions of torch in which it cannot be run, with the reason."""
        return {}

    @property
    def compute_dtype(self) -> str:
        """The dtype of forward and backward."""
        return "float32"

    @property
    def reduce_dtype(self) -> str:
        """The dtype in which gradients travel."""
        return self.compute_dtype

    @property
    @abstractmethod
    def where(self) -> str | None:
        """The group, or the mesh, over which it works; None is the world."""

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that it names."""
        return () if self.where is None else (self.where,)

    @abstractmethod
    def apply(self, real: Any) -> None:
        """Let torch apply it to a model that was built, in the worker."""

    def distributes(self, parameter: str) -> bool:
        """Whether torch holds that parameter as a distributed tensor."""
        return False

    def misfit(self, network: Sequential) -> str | None:
        """Return why it does not go with the layers of a model, or None.

        Raises LeftOutError where torch lets it go with them, and no model here does.
        """
        return None


class LeftOutError(Exception):
    """What torch has, or has elsewhere, and no model here: the reason."""


class Model(Marked, frozen=True, kw_only=True):
    """One entry of `models:`. `init` has the forms of those weights that are stated."""

    apart = ("mark", "moments")

    name: str
    network: Sequential
    loss: Loss
    optimizer: Optimizer
    parallel: tuple[Strategy, ...] = ()
    init: Mapping[str, Form] = field(default_factory=dict)
    #: what one process uses in their place
    oracle_loss: Loss | None = None
    oracle_optimizer: Optimizer | None = None
    #: the optimizer of each rank, where an argument depends on the rank; one process has the most
    #: common one
    optimizers: tuple[Optimizer, ...] = ()
    #: why it is not trained here although torch may know it, or None
    lacking: str | None = None
    #: what one process has, by the weights that it began with: ranks share it
    moments: dict[Any, Any] = field(default_factory=dict)

    @property
    def where(self) -> str | None:
        """The group, or the mesh, whose members train it; None is the world."""
        return self.parallel[0].where if self.parallel else None

    def of_rank(self, rank: int) -> Model:
        """Return the model with the optimizer that a rank has."""
        return replace(self, optimizer=self.optimizers[rank]) if self.optimizers else self

    def as_trained(self) -> Model:
        """Return the model without what one process uses in the place of its loss and optimizer."""
        return replace(self, oracle_loss=None, oracle_optimizer=None, moments={})

    @property
    def coarse(self) -> Sequential:
        """The layers in the dtype in which ranks compute."""
        if self.compute_dtype == "float32":
            return self.network
        return Coarse(layers=self.network.layers, dtype=self.compute_dtype)

    @property
    def compute_dtype(self) -> str:
        """The dtype in which ranks go forward and backward."""
        coarse = (each.compute_dtype for each in self.parallel if each.compute_dtype != "float32")
        return next(coarse, "float32")

    @property
    def reduce_dtype(self) -> str:
        """The coarsest dtype in which gradients travel."""
        return next(
            (each.reduce_dtype for each in self.parallel if each.reduce_dtype != "float32"),
            "float32",
        )

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules of torch's that its strategies need."""
        # the first step of any optimizer imports torch._dynamo, which takes seconds
        own = tuple(module for each in self.parallel for module in each.imports)
        return ("torch._dynamo", *own)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters: `up.weight`."""
        return tuple(self.network.shapes())

    @property
    def value_names(self) -> tuple[str, ...]:
        """The names of what a rank holds before it trains: parameters, and buffers of layers."""
        return (*self.parameters, *self.network.buffers())

    @property
    def values(self) -> tuple[str, ...]:
        """The names that a scenario may ask for, as it writes them: `net.up.weight.grad`."""
        grads = [f"{each}.grad" for each in self.parameters]
        own = (*self.value_names, *grads, "loss", "memory", LAYOUTS)
        return tuple(f"{self.name}.{each}" for each in own)

    def is_distributed(self, parameter: str) -> bool:
        """Whether a parameter of its layers, by its name, is a distributed tensor."""
        known = parameter in self.parameters
        return known and any(each.distributes(parameter) for each in self.parallel)

    def strategy(self, kind: type[Any]) -> Any:
        """Return the entry of `parallel:` of that kind, or None."""
        return next((each for each in self.parallel if isinstance(each, kind)), None)


# -------------------------------------------------------------------------------------------------
# One step of training, as a scenario asks for it.


class Rows(Struct, frozen=True, kw_only=True):
    """Which rows a rank takes of what it holds.

    Those that `torch.chunk` gives the member of a group; `sizes` cuts unevenly; a `sampler` picks
    by index (:mod:`torch_scenarios.strategies.sampler`). `dim` is the dimension that is cut: 1 is
    that of the positions of a sequence.
    """

    group: str
    dim: int = 0
    sizes: tuple[int, ...] | None = None
    sampler: Mapping[str, Any] | None = None

    @staticmethod
    def of(given: Mapping[str, Any]) -> Rows:
        """Return what `batch:` says."""
        rest = dict(given)
        group, sizes = rest.pop("group") or "world", rest.pop("sizes", None)
        dim = rest.pop("dim", 0)
        sampler = rest if rest.pop("DistributedSampler", False) else None
        cut = None if sizes is None else tuple(sizes)
        return Rows(group=group, dim=dim, sizes=cut, sampler=sampler)

    def rows(self, count: int, size: int, at: int) -> Any:
        """Return an index for the rows of member `at` of `size`."""
        if self.sampler is not None:
            from torch_scenarios.strategies.sampler import indices

            return indices(count, **{"num_replicas": size, "rank": at, **self.sampler})
        sizes = self.sizes if self.sizes is not None else chunks(count, size)
        start = sum(sizes[:at])
        return slice(start, start + sizes[at] if at < len(sizes) else start)


class Clip(Struct, frozen=True, kw_only=True):
    """To which norm gradients are clipped: `most` by rank. `local`: by the norm of a rank alone."""

    most: tuple[float, ...]
    local: bool = False

    @property
    def of_one(self) -> float:
        """What one process clips to: what most ranks do."""
        ((most, _),) = Counter(self.most).most_common(1)
        return most


class TrainStep(Struct, frozen=True, kw_only=True):
    """One `train`: the arguments of the step, evaluated on one rank."""

    input: Any
    target: Any
    batch: Rows | None = None
    zero_grad: bool = True
    step: bool = True
    sync: bool = True
    skip: tuple[str, ...] = ()
    clip: Clip | None = None
    #: what the gradients of one process are multiplied by: the part of the ranks that have rows
    weight: float = 1.0

    @staticmethod
    def of(given: Mapping[str, Any]) -> TrainStep:
        """Return what the arguments of a step ask for."""
        batch = given["batch"]
        return TrainStep(
            input=given["input"],
            target=given["target"],
            batch=None if batch is None else Rows.of(batch),
            zero_grad=given["zero_grad"],
            step=given["step"],
            sync=given["sync"],
            skip=tuple(given["skip"] or ()),
            clip=None if given["clip_grad_norm_"] is None else Clip(**given["clip_grad_norm_"]),
        )

    def local(self, group: Callable[[str], Group], rank: int) -> tuple[Any, Any]:
        """Return the rows of input and target that a rank takes."""
        index = self.index(group, rank)
        return self.input[index], self.target[index]

    def index(self, group: Callable[[str], Group], rank: int) -> Any:
        """Return where they are. Raises DataError for a sampler that has none for the rank."""
        if self.batch is None:
            return ...
        members = group(self.batch.group)
        dim, at = self.batch.dim % self.input.ndim, members.group_rank(rank)
        rows = self.batch.rows(self.input.shape[dim], members.size, at)
        return (*(slice(None) for _ in range(dim)), rows)


# -------------------------------------------------------------------------------------------------
# One process: the whole batch, in float64, and twice more to know what rounding makes of it.

#: by how much more than rounding a value may be off: other orders of addition
SLACK = 8.0
#: and a gradient in a coarser dtype: most of what it is made of is rounded alike
COARSE_TIMES = 3.0
#: and so many units in the last place of a tensor's largest element
ULPS = 4.0
#: by how much more float32 may be off than where the optimizer steps in float64: what is further
#: off is a fault of the optimizer that shows in float32 alone, and widens no tolerance
TRUSTED = 32.0

#: how many processes tell what follows from steps that rounding decides: two in which all of them
#: move the outputs to one side, and the others at random
WAYS = 6

EPSILON = float(np.finfo(np.float32).eps)


class OneProcess:
    """The model as one process trains it, at one point.

    `computed` is the dtype of forward and backward; that of the weights, of their gradients and of
    what the optimizer does is the weights' own.
    """

    def __init__(self, model: Model, params: Arrays, computed: Any) -> None:
        """Begin with these weights."""
        self._model = model
        self._computed = computed
        self.params = params
        self.buffers: Arrays = model.network.buffers()
        self.grads: Arrays = {}
        #: what the terms of each gradient amount to, whether they cancel or not; in float64 alone
        self.sizes: Arrays = {}
        self.states: dict[str, dict[str, Any]] = {name: {} for name in params}

    @property
    def count(self) -> int:
        """How many numbers the weights have."""
        return sum(value.size for value in self.params.values())

    def loss(self, x: Any, y: Any) -> Array:
        """Return the loss of some rows, with the weights as they are."""
        given, _ = self._network.forward(self._cast(), self._convert(x))
        return (self._model.oracle_loss or self._model.loss).value(given, self._convert(y))[0]

    def learn(self, order: TrainStep) -> OneProcess:
        """Return the process once it has gone forward and backward on the whole batch."""
        network = self._network
        loss = self._model.oracle_loss or self._model.loss
        params = self._cast()
        given, saved = network.forward(params, self._convert(order.input))
        _, dy = loss.value(given, self._convert(order.target))
        # all processes go back the same way: where one did not, its fault would widen a tolerance
        _, found = network.backward(params, saved, dy)
        sizes: Arrays = {}
        if self._computed is np.float64:
            sizes = network.weigh(params, saved, dy)[2]
        buffers = network.update_buffers(self.buffers, saved) if self.buffers else {}
        if order.weight != 1.0:
            found, sizes = (
                {name: value * value.dtype.type(order.weight) for name, value in each.items()}
                for each in (found, sizes)
            )
        found = {name: self._reduce(name, value) for name, value in found.items()}
        later = OneProcess(self._model, self.params, self._computed)
        later.buffers = buffers
        later.states = {name: dict(state) for name, state in self.states.items()}
        later.grads, later.sizes = found, sizes
        if not order.zero_grad:
            later.grads = {name: _sum(self.grads, name, value) for name, value in found.items()}
            later.sizes = {name: _sum(self.sizes, name, value) for name, value in sizes.items()}
        if order.clip is not None:
            total = norm(later.grads.values())
            later.grads = clip_by_norm(later.grads, order.clip.of_one, total)
            later.sizes = clip_by_norm(later.sizes, order.clip.of_one, total)
        return later

    def leans(self, x: Any) -> Arrays:
        """Return 1 for each element of a weight with which the sum of the outputs grows, else -1.

        `x` are rows of the input. Steps of many elements that all follow these signs, or all go
        against them, move that sum the farthest; steps at random may cancel each other.
        """
        params = self._cast()
        given, saved = self._network.forward(params, self._convert(x))
        _, grads = self._network.backward(params, saved, np.ones_like(given))
        return {
            name: np.where(grads[name] < 0, -1.0, 1.0) if name in grads else np.ones(value.shape)
            for name, value in self.params.items()
        }

    @property
    def optimizer(self) -> Optimizer:
        """What steps."""
        return self._model.oracle_optimizer or self._model.optimizer

    def step(self, more: Arrays | None = None) -> None:
        """Let the optimizer step; `more` is added to gradients, which stay what they are."""
        with np.errstate(all="ignore"):
            grads = {name: _sum(more or {}, name, value) for name, value in self.grads.items()}
            self.params = {
                name: self.optimizer.step(value, grads[name], self.states[name])
                for name, value in self.params.items()
            }

    def copy(self) -> OneProcess:
        """Return one that steps by itself from here."""
        other: OneProcess = copy(self)
        other.states = {name: dict(state) for name, state in self.states.items()}
        return other

    def load(self, saved: OneProcess) -> OneProcess:
        """Return the process with the weights and the optimizer's state of another."""
        names = self.params
        later = OneProcess(
            self._model, {name: saved.params[name] for name in names}, self._computed
        )
        later.states = {name: dict(saved.states[name]) for name in names}
        later.grads, later.sizes = self.grads, self.sizes
        return later

    def _convert(self, value: Any) -> Array:
        array = np.asarray(value)
        return array.astype(self._computed) if array.dtype.kind == "f" else array

    @property
    def _network(self) -> Sequential:
        return self._model.network if self._computed is np.float64 else self._model.coarse

    def _reduce(self, name: str, value: Array) -> Array:
        """Return a gradient as it travels."""
        if self._computed is not np.float64:
            value = coarse(value, self._model.reduce_dtype)
        return value.astype(self.params[name].dtype)

    def _cast(self) -> Arrays:
        return {
            name: value.astype(self._computed, copy=False) for name, value in self.params.items()
        }


def _turns(number: int, name: str, leans: Array) -> Array:
    """Return which way each element goes: as it leans, then at random; and the opposite of each."""
    signs = leans
    if number >= 2:
        random = np.random.default_rng([number // 2 - 1, crc32(name.encode())])
        signs = random.choice([-1.0, 1.0], leans.shape)
    return signs if number % 2 else -signs


def _sum(before: Arrays, name: str, value: Array) -> Array:
    return before[name] + value if name in before else value


class Moment:
    """What one process has after some steps, in float64 and as rounding may have it.

    `rounded` is in float32. `shaken` goes forward and backward in float32 as well, from weights of
    which each last bit is changed, and its optimizer steps in float64. Ranks that give it the same
    steps share their results.

    An element of a weight is open where rounding decides which way its optimizer steps
    (:class:`torch_scenarios.modules.optimizer.Reached`). From then on there are `ways` as well:
    processes in which each open element went one way or the other. They tell what follows from it.
    """

    def __init__(
        self,
        exact: OneProcess,
        rounded: OneProcess,
        shaken: OneProcess,
        bits: tuple[float, float],
        ways: tuple[OneProcess, ...] = (),
    ) -> None:
        """Hold the three, with the last bits of what computes and of what reduces, if coarse."""
        self._bits = bits
        self._exact, self._rounded, self._shaken = exact, rounded, shaken
        self._ways = ways
        self._reached: dict[str, Reached] = {}
        self._later: dict[Any, Moment] = {}
        self._loaded: list[Moment] = []
        self._known: dict[Any, tuple[Array, Off]] = {}
        #: the steps so far, and what is known less closely than rounding alone has it, by what name
        self.steps = 0
        self.loose: dict[str, str] = {}

    @property
    def processes(self) -> tuple[OneProcess, OneProcess, OneProcess]:
        """The three."""
        return self._exact, self._rounded, self._shaken

    @staticmethod
    def first(model: Model, weights: Mapping[str, Array]) -> Moment:
        """Return where one process begins."""
        exact = {name: value.astype(np.float64) for name, value in weights.items()}
        rounded = {name: value.astype(np.float32) for name, value in weights.items()}
        shaken = {name: shake(value) for name, value in exact.items()}
        return Moment(
            OneProcess(model, exact, np.float64),
            OneProcess(model, rounded, np.float32),
            OneProcess(model, shaken, np.float32),
            bits=(
                coarse_bit(model.compute_dtype),
                coarse_bit(model.compute_dtype, model.reduce_dtype),
            ),
        )

    def after(self, order: TrainStep) -> Moment:
        """Return what it has after a step on the whole batch."""
        given = (_key(order.input), _key(order.target))
        key = (*given, order.zero_grad, order.step, order.clip, order.weight)
        if key not in self._later:
            count = len(self.processes) + len(self._ways)
            charge(self._exact.count, order.input, processes=count, moments=1)
            exact, rounded, shaken = (each.learn(order) for each in self.processes)
            ways = tuple(each.learn(order) for each in self._ways)
            later = Moment(exact, rounded, shaken, self._bits, ways)
            later._reached, later.steps = dict(self._reached), self.steps + 1
            later.loose = dict(self.loose)
            if order.step:
                later._step(order)
            self._later[key] = later
        return self._later[key]

    def _step(self, order: TrainStep) -> None:
        """Let the optimizers step, and find out how far that may have led.

        A gradient may be off by its tolerance, unless it has no terms: then it is 0 everywhere.
        """
        exact, before = self._exact, self._exact.copy()
        errors = {
            name: np.where(exact.sizes[name] == 0, 0.0, self._of_grad(name)[1])
            for name in exact.grads
        }
        for each in self.processes:
            each.step()
        for name, error in errors.items():
            known, state = self._reached.get(name), exact.states[name]
            grad = exact.grads[name]
            self._reached[name] = exact.optimizer.reach(
                before.params[name], grad, error, state, known
            )
        if self._ways or any(bool(each.open.any()) for each in self._reached.values()):
            self._ways = self._ways or tuple(before.copy() for _ in range(WAYS))
            leans = before.leans(order.input)
            for number, way in enumerate(self._ways):
                way.step(
                    {
                        name: errors[name] * reached.open * _turns(number, name, leans[name])
                        for name, reached in self._reached.items()
                        if name in errors
                    }
                )

    def load(self, model: Model, saved: Moment) -> Moment:
        """Return the three with the weights and the state of a model that was saved."""
        key = ("load", model.name, id(saved))
        if key not in self._later:
            charge(saved.processes[0].count, (), processes=3, moments=1)
            pairs = zip(self.processes, saved.processes, strict=True)
            exact, rounded, shaken = (mine.load(other) for mine, other in pairs)
            ways = tuple(self._exact.load(other) for other in saved._ways)
            later = Moment(exact, rounded, shaken, self._bits, ways)
            later._reached = {
                name: reached for name, reached in saved._reached.items() if name in exact.params
            }
            later.steps = self.steps
            self._later[key] = later
            self._loaded.append(saved)  # what has its id lives as long as this
        return self._later[key]

    def loss(self, x: Any, y: Any) -> tuple[Array, Off]:
        """Return the loss of some rows, and its tolerance."""
        return self._recall(("loss", _key(x), _key(y)), lambda process: process.loss(x, y))

    def grad(self, name: str) -> tuple[Array, Off] | None:
        """Return the gradient of a parameter, and its tolerance; None where it has none."""
        if name not in self._exact.grads:
            return None
        return self._of_grad(name)

    def _of_grad(self, name: str) -> tuple[Array, Off]:
        return self._recall(("grad", name), lambda process: process.grads[name])

    def param(self, name: str) -> tuple[Array, Off]:
        """Return a parameter, and its tolerance: for each element where some are open."""
        return self._recall(("param", name), lambda process: process.params[name])

    def buffer(self, name: str) -> tuple[Array, Off]:
        """Return a buffer of a layer, and its tolerance."""
        return self._recall(("buffer", name), lambda process: process.buffers[name])

    def _recall(self, key: Any, value: Callable[[OneProcess], Array]) -> tuple[Array, Off]:
        if key not in self._known:
            exact, rounded, shaken = map(value, self.processes)
            # what one process cannot hold in float32 no rank can
            there = np.isfinite(rounded)
            held = exact if there.all() else np.where(there, exact, rounded)
            most: Off
            if key[0] == "param":
                most = self._of_reached(key[1], exact, rounded, shaken)
            else:
                size = self._exact.sizes.get(key[1]) if key[0] == "grad" else None
                most = tolerance(exact, rounded, shaken, self._bit(key), size)
                most = self._follow(key, exact, [value(each) for each in self._ways], most)
            self._known[key] = held, most
        return self._known[key]

    def _of_reached(self, name: str, exact: Array, rounded: Array, shaken: Array) -> Array:
        """Return the tolerance of each element of a weight, from what its gradients are off by."""
        reached = self._reached.get(name) or Reached.start(exact)
        with np.errstate(invalid="ignore"):
            left = [
                exact + np.sign(off) * np.maximum(np.abs(off) - reached.off, 0.0)
                for off in (rounded - exact, shaken - exact)
            ]
        count = int(reached.open.sum())
        if count:
            most = float(reached.off[reached.open].max())
            which = "" if count == exact.size else f" ({count} of {exact.size} elements)"
            self._note(
                name,
                f"to within {most:.2g}{which}",
                "rounding decides the sign of its gradient, and"
                f" {self._exact.optimizer.name} makes a whole step of that",
            )
        return reached.off + tolerance(exact, *left)

    def _follow(self, key: Any, exact: Array, ways: list[Array], most: Off) -> Off:
        """Return the tolerance of what depends on open elements of weights."""
        with np.errstate(invalid="ignore"):
            apart = [np.abs(each - exact) for each in ways]
        finite = [each[np.isfinite(each)] for each in apart]
        follows = SLACK * max((float(each.max()) for each in finite if each.size), default=0.0)
        if follows > np.max(most) and follows >= float(np.abs(exact).max()):
            name = "loss" if key[0] == "loss" else f"{key[1]}.grad" if key[0] == "grad" else key[1]
            self._note(
                name,
                f"to within {follows:.2g}",
                "it depends on weights whose steps rounding decides",
            )
        return np.maximum(most, follows) if ways else most

    def _note(self, name: str, how: str, why: str) -> None:
        """Note once what is known less closely than rounding alone has it."""
        self.loose.setdefault(name, f"{name} is known {how} after step {self.steps - 1}: {why}")

    def _bit(self, key: Any) -> float:
        """Return the last bit of the coarse dtype that a value passes through; 0 for none.

        What follows a step passes through its gradients.
        """
        computed, reduced = self._bits
        return reduced if self.steps else computed


class Checkpoint(Struct, frozen=True, kw_only=True):
    """What a checkpoint holds: whole weights, the optimizer's state of each, and one process's."""

    model: Model
    weights: Arrays
    states: Mapping[str, Mapping[str, Any]]
    trained: Oracle

    @staticmethod
    def of(model: Model, pieces: Sequence[Mapping[str, Any]]) -> Checkpoint:
        """Join what each rank wrote; of replicas the first rank's counts."""
        shapes = model.network.shapes()
        found = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        states: dict[str, dict[str, Any]] = {name: {} for name in shapes}
        for piece in reversed(pieces):
            for name, (index, local, state) in piece["parts"].items():
                found[name].reshape(-1)[index.reshape(-1)] = local.reshape(-1)
                for key, value in state.items():
                    if not hasattr(value, "shape"):
                        states[name][key] = value
                        continue
                    whole = states[name].setdefault(key, np.zeros(shapes[name], np.float32))
                    whole.reshape(-1)[index.reshape(-1)] = value.reshape(-1)
        trained = pieces[0]["trained"]
        return Checkpoint(model=model, weights=found, states=states, trained=trained)


class Oracle:
    """What one process has, as one rank asks it: it tells the steps that it knows of."""

    def __init__(self, model: Model, weights: Mapping[str, Array]) -> None:
        """Begin with the weights of one process."""
        key = tuple(map(_key, weights.values()))
        if key not in model.moments:
            model.moments[key] = Moment.first(model, weights)
        self._now: Moment = model.moments[key]
        self._own: Oracle | None = None
        if model.oracle_loss is not None or model.oracle_optimizer is not None:
            own = model.moments.setdefault("own", model.as_trained())
            self._own = Oracle(own, weights)

    @property
    def own(self) -> Oracle:
        """One process with the loss and the optimizer of the ranks, whatever `oracle:` says.

        Rounding leads the ranks as far as it leads this one.
        """
        return self._own or self

    def train(self, order: TrainStep) -> None:
        """Take one step on the whole batch."""
        self._now = self._now.after(order)
        if self._own is not None:
            self._own.train(order)

    def terms(self, order: TrainStep, name: str) -> float:
        """Return what the terms of a gradient of a step amount to, at most."""
        sizes = self._now.after(order).processes[0].sizes
        return float(sizes[name].max()) if name in sizes and sizes[name].size else 0.0

    @property
    def loose(self) -> Mapping[str, str]:
        """What is known less closely than rounding alone has it: a note for each name."""
        return self._now.loose

    def copy(self) -> Oracle:
        """Return one that stands where this one does."""
        other: Oracle = copy(self)
        other._own = None if self._own is None else self._own.copy()
        return other

    def load(self, model: Model, saved: Oracle) -> None:
        """Go on from where another process, or this one, was saved."""
        self._now = self._now.load(model, saved._now)
        if self._own is not None:
            self._own.load(model, saved.own)

    def loss(self, x: Any, y: Any) -> tuple[Array, Off]:
        """Return the loss of some rows, and its tolerance."""
        return self._now.loss(x, y)

    def grad(self, name: str) -> tuple[Array, Off] | None:
        """Return the gradient of a parameter, and its tolerance; None where it has none."""
        return self._now.grad(name)

    def param(self, name: str) -> tuple[Array, Off]:
        """Return a parameter, and its tolerance."""
        return self._now.param(name)

    def buffer(self, name: str) -> tuple[Array, Off]:
        """Return a buffer of a layer, and its tolerance."""
        return self._now.buffer(name)


def charge(weights: int, x: Any, *, processes: int = 1, moments: int = 0) -> None:
    """Charge a step of training to the account of the case, before it is computed.

    Forward and backward multiply each weight three times with each row of the input, `x`; an
    optimizer goes over the weights. What is kept holds weights, gradients and an
    optimizer's state of one process three times, and the rows that it came from.
    Raises BoundError where the account has no room for it.
    """
    found = account()
    if found is None:
        return
    array = np.asarray(x)
    rows = array.size // max(array.shape[-1], 1) if array.ndim else 1
    if moments:
        found.keep(moments * (_MOMENT_BYTES * weights + 2 * array.nbytes))
    passes = rows * _STEP_PRODUCTS // MATMUL + _STEP_PASSES
    found.spend(processes * (weights * passes + _STEP_WORK))


def _key(value: Any) -> tuple[Any, ...]:
    array = np.asarray(value)
    return array.shape, array.dtype.str, array.tobytes()


def coarse_bit(*dtypes: str) -> float:
    """Return the largest spacing at 1 of dtypes that are coarser than float32; 0 where none is."""
    found: Any = ml_dtypes.finfo
    bits = [float(found(getattr(ml_dtypes, each, each)).eps) for each in dtypes]
    return max((each for each in bits if each > EPSILON), default=0.0)


def shake(value: Array, off: Array | float = 0.0) -> Array:
    """Return a value with each last bit of float32 changed, and each element by `off` more."""
    signs = _signs(value)
    return np.asarray(value * (1 + EPSILON * signs) + off * signs)


def _signs(value: Array) -> Array:
    """Return 1 and -1, in no order that a matrix has."""
    return np.where(np.arange(value.size) * 7 % 5 % 2, 1.0, -1.0).reshape(value.shape)


def tolerance(
    exact: Array,
    rounded: Array,
    shaken: Array,
    bit: float = 0.0,
    size: Array | None = None,
) -> Off:
    """Return how far a value may be off that is computed in another order.

    What float32 is off by counts as far as forward and backward explain it. `bit` is the last bit
    of a dtype that is coarser than float32, where one is computed in; 0 otherwise.
    `size` is what the terms of a sum amount to: where they cancel, what rounding leaves is a part
    of them, and not of the sum (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). Ranks
    round their parts of a sum to a coarse dtype, each by half of its last bit: of all terms
    together that is so much for each element.
    """
    terms = np.abs(exact) if size is None else np.maximum(size, np.abs(exact))
    parts = bit * np.nan_to_num(terms, nan=0.0, posinf=0.0) if bit and size is not None else 0.0
    if not all(bool(np.isfinite(each).all()) for each in (exact, rounded, shaken)):
        finite = np.isfinite(exact) & np.isfinite(rounded) & np.isfinite(shaken)
        exact, rounded, shaken, terms = (each[finite] for each in (exact, rounded, shaken, terms))
    if not exact.size:
        return 0.0
    off, moved = float(np.abs(exact - rounded).max()), float(np.abs(exact - shaken).max())
    last = EPSILON * float(terms.max())
    off = min(off, TRUSTED * (moved + last))
    if not bit:
        return SLACK * max(off, moved) + ULPS * last
    times = SLACK if size is None else COARSE_TIMES
    return times * max(off, moved, bit * float(np.abs(exact).max())) + ULPS * last + parts


def apart(value: Array, exact: Array) -> float:
    """Return how far a value may be off of which float64 has another one."""
    with np.errstate(all="ignore"):
        off = np.abs(value - exact)
    off = off[np.isfinite(off)]
    return SLACK * float(off.max()) if off.size else 0.0


def norm(grads: Any) -> float:
    """Return the norm of gradients taken together."""
    return float(np.sqrt(sum(float((each.astype(np.float64) ** 2).sum()) for each in grads)))


def squares(grads: Any) -> Array:
    """Return the sum of the squares of each gradient, in float32."""
    return np.asarray([float((each.astype(np.float64) ** 2).sum()) for each in grads], np.float32)


def clip_by_norm(grads: Arrays, most: float, total: float) -> Arrays:
    """Return gradients whose norm is `most` at most, as `clip_grad_norm_` has it."""
    factor = min(1.0, most / (total + 1e-6))
    return {name: (value * factor).astype(value.dtype) for name, value in grads.items()}


# -------------------------------------------------------------------------------------------------
# One rank of a model, in the reference.


class Unequal(Struct, frozen=True, kw_only=True):
    """A value that is not what one process has: the first of a model, on one rank."""

    model: str
    value: str
    prose: str


class Trainee(ABC):
    """One rank of a model, as its strategy lets it compute and call.

    `params` and `grads` are the local tensors, float32, by the names of the parameters.
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
        self.oracle = Oracle(model, self._whole_of(first))
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

    def _whole_of(self, rank: int) -> Arrays:
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
        notes = self._new_notes()
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
            off = SLACK / 2 * EPSILON * np.abs(value) * _turns(way, name, value)
            self.params[name] = (value + off).astype(value.dtype)

    def _move_gradients(self, way: int, order: TrainStep) -> None:
        """Let each gradient be off by last bits of what its terms amount to: half of ULPS."""
        for name, value in self.grads.items():
            terms = max(self.oracle.own.terms(order, name), float(np.abs(value).max(initial=0.0)))
            off = ULPS / 2 * EPSILON * terms * _turns(way, f"{name}.grad", value)
            self.grads[name] = (value + off).astype(value.dtype)

    def _new_notes(self) -> tuple[str, ...]:
        """Return what is known less closely than rounding alone has it, each value once."""
        loose = {name: note for name, note in self.oracle.loose.items() if name not in self._noted}
        self._noted.update(loose)
        return tuple(f"{self.model.name}.{note}" for note in loose.values())

    def _read_buffers(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the buffers of the layers by their names, and how far off rounding brings them."""
        name = self.model.name
        values = {f"{name}.{each}": value.copy() for each, value in self.buffers.items()}
        slack = {
            f"{name}.{each}": bound_of(value, *self.oracle.own.buffer(each))
            for each, value in self.buffers.items()
            if value.dtype.kind == "f"
        }
        return values, slack

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

    def compare(self, order: TrainStep, x: Array, y: Array, loss: Array | None) -> Unequal | None:
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
                return Unequal(model=self.model.name, value=name, prose=f"{name} {prose}")
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


def bound_of(mine: Array, wanted: Array, off: Off) -> Array:
    """Return how far another implementation may be from what a rank has: both are off alike."""
    with np.errstate(all="ignore"):
        here = np.abs(mine - wanted) if mine.shape == wanted.shape else np.zeros(())
        if not np.isfinite(here).all():
            here = np.nan_to_num(here)
        bound: Array = off + np.minimum(here, off)
        return bound if bound.shape == mine.shape else np.broadcast_to(bound, mine.shape)


def unequal(mine: Array, wanted: Array, most: Off) -> str | None:
    """Return in words how a value is off by more than its tolerance; None where it is not."""
    if mine.shape != wanted.shape:
        return f"has shape {list(mine.shape)}, and one process has {list(wanted.shape)}"
    if not mine.size:
        return None
    with np.errstate(all="ignore"):
        off = np.abs(mine.astype(np.float64) - wanted)
        if bool((off <= most).all()):
            return None
        agree = (off <= most) | (np.isnan(mine) & np.isnan(wanted)) | (mine == wanted)
    if bool(agree.all()):
        return None
    worst = int(np.argmax(np.where(agree, -1.0, np.nan_to_num(off, nan=np.inf, posinf=np.inf))))
    place = list(map(int, np.unravel_index(worst, mine.shape))) if mine.ndim else ""
    has, should = float(mine.reshape(-1)[worst]), float(wanted.reshape(-1)[worst])
    prose = f"is not what one process computes: {has:.6g} at {place}, where it has {should:.6g}"
    if not mine.ndim:
        prose = f"is not what one process computes: {has:.6g}, where it has {should:.6g}"
    ratio = factor(mine, wanted, most)
    return prose if ratio is None else f"{prose}; a factor of {ratio:.3f} everywhere"


#: how far apart, as a part of them, the ratios of elements may be that are one factor
ALIKE = 1e-3


def factor(mine: Array, wanted: Array, most: Off) -> float | None:
    """Return the one factor between two values, or None."""
    large = np.abs(wanted) > np.maximum(100 * most, float(np.abs(wanted).max()) * 1e-3)
    if not large.any():
        return None
    with np.errstate(all="ignore"):
        ratios = mine.astype(np.float64)[large] / wanted[large]
    middle = float(np.median(ratios))
    if not np.isfinite(ratios).all() or abs(middle - 1) < ALIKE:
        return None
    close = bool((np.abs(ratios - middle) <= ALIKE * abs(middle)).all())
    return middle if close else None


def weights(
    model: Model, caller: Any, rank: int, drawn: Mapping[str, Array] | None = None
) -> Arrays:
    """Return the whole weights with which a rank begins: those stated, else small random numbers.

    The n-th parameter of a model is `random(shape, n) / 2`, from 1, on every rank; `drawn` has
    those of another one.
    """
    found: Arrays = {}
    random = caller.arrays.functions()["random()"]
    own, caller.scope["rank"], caller.rank = caller.rank, rank, rank
    try:
        for number, (name, shape) in enumerate(model.network.shapes().items(), start=1):
            form = model.init.get(name)
            if form is None and drawn is not None:
                found[name] = drawn[name]
                continue
            if form is None:
                found[name] = random(list(shape), number) / 2
                continue
            value = caller.tensor_value(form, dtype="float32")
            if value is None or tuple(value.shape) != shape:
                given = "nothing" if value is None else f"a tensor of {list(value.shape)}"
                message = f"{model.name}.{name} is {list(shape)}, and `init` gives it {given}"
                raise WeightError(message, getattr(form, "mark", None) or model.mark)
            found[name] = value
    finally:
        caller.scope["rank"] = caller.rank = own
    return found


class WeightError(Exception):
    """A weight that is stated with another shape."""

    def __init__(self, message: str, mark: Mark | None) -> None:
        """Keep the place."""
        super().__init__(message)
        self.mark = mark


def unknown_label(network: Sequential, labels: Any) -> str | None:
    """Return words for a label that no layer has, or None."""
    known = [label for label, _ in network.layers]
    stranger = next((each for each in labels if str(each) not in known), None)
    return None if stranger is None else f"no layer is called `{stranger}`: {', '.join(known)} are"


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
