"""The whole batch, trained by one process in float64: what each rank of a strategy is held against.

Twice more, in float32 and with its last bits changed, it tells what rounding makes of each value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import numpy as np

from torch_scenarios.limits import MATMUL, account
from torch_scenarios.modules import Sequential
from torch_scenarios.modules.base import Array
from torch_scenarios.modules.optimizer import Optimizer, UpdateBound
from torch_scenarios.modules.sequential import coarse
from torch_scenarios.strategies.model import Arrays, Model, TrainStep
from torch_scenarios.strategies.tolerance import (
    SLACK,
    Off,
    choose_directions,
    coarse_bit,
    shake,
    tolerance,
)

#: multiplications of each weight with each row: once forward, twice backward
_STEP_PRODUCTS = 3

#: units of work of a step of one rank, whatever its sizes: 200 to 340 us
_STEP_WORK = 80_000

#: how often a step goes over all weights: gradients, an optimizer, what is compared and copied
_STEP_PASSES = 16

#: bytes of a weight in a moment: weight, gradient and two states, in float64, float32, float64
_MOMENT_BYTES = 80

#: how many processes tell what follows from steps that rounding decides: two in which all of them
#: move the outputs to one side, and the others at random
WAYS = 6


class OneProcess:
    """The model as one process trains it, at one point.

    `computed` is the dtype of forward and backward; that of the weights, of their gradients and of
    what the optimizer does is the weights' own.

    It is never changed: `learn` and what follows return another one. Ranks are at different steps
    at the same time, and each asks the process at its own.

        weights --learn--> gradients --step--> weights --learn--> ...
           |                   |
         rank 0 is here      rank 1 is here: both are held against the same line of processes
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


def _sum(before: Arrays, name: str, value: Array) -> Array:
    return before[name] + value if name in before else value


class Moment:
    """What one process has after some steps, in float64 and as rounding may have it.

    `rounded` is in float32. `shaken` goes forward and backward in float32 as well, from weights of
    which each last bit is changed, and its optimizer steps in float64. Ranks that give it the same
    steps share their results.

    An element of a weight is open where rounding decides which way its optimizer steps
    (:class:`torch_scenarios.modules.optimizer.UpdateBound`). From then on there are `ways` as well:
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
        self._reached: dict[str, UpdateBound] = {}
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

    # Why an optimizer cannot be compared by the size of a rounding error.
    #
    #     gradient      exactly 0        in float32 3e-9, or -2e-9, by the order of a sum
    #     SGD           w - lr * g       off by lr * 3e-9: less than a last bit of w
    #     Adam          w - lr * sign    +lr or -lr: the whole of a step, and each rank is right
    #
    # Adam divides the gradient by the root of its own square. Where all there is of a gradient is
    # what rounding leaves, the direction of the step is noise, and any tolerance that allows for it
    # on such an element would allow for a forgotten step on every other one. So it is found out
    # element by element which of them are open (`UpdateBound`), and what later steps make of those
    # is tried: `ways` are processes in which the open elements go one way or the other (decision
    # 55).
    def _step(self, order: TrainStep) -> None:
        """Let the optimizers step, and find out how far that may have led.

        A gradient may be off by its tolerance, unless it has no terms: then it is 0 everywhere.
        """
        exact, before = self._exact, self._exact.copy()
        errors = {
            name: np.where(exact.sizes[name] == 0, 0.0, self._read_gradient(name)[1])
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
                        name: errors[name]
                        * reached.open
                        * choose_directions(number, name, leans[name])
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
        return self._read_gradient(name)

    def _read_gradient(self, name: str) -> tuple[Array, Off]:
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
                most = self._bound_weight(key[1], exact, rounded, shaken)
            else:
                size = self._exact.sizes.get(key[1]) if key[0] == "grad" else None
                most = tolerance(exact, rounded, shaken, self._bit(key), size)
                most = self._follow(key, exact, [value(each) for each in self._ways], most)
            self._known[key] = held, most
        return self._known[key]

    def _bound_weight(self, name: str, exact: Array, rounded: Array, shaken: Array) -> Array:
        """Return the tolerance of each element of a weight, from what its gradients are off by."""
        reached = self._reached.get(name) or UpdateBound.start(exact)
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


class Oracle:
    """What one process has, as one rank asks it: it follows the steps that the rank takes.

    An oracle answers with a value and how far a right rank may be off it (`Off`). The value is that
    of float64; the distance is what the same steps in float32, and with their last bits changed,
    are off.

        rank in float32     0.30000001   within 8 times what float32 leaves: equal
        rank, mean of sums  0.6          `not_equivalent`
    """

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


def norm(grads: Any) -> float:
    """Return the norm of gradients taken together.

    >>> norm([np.array([3.0]), np.array([4.0])])
    5.0
    """
    return float(np.sqrt(sum(float((each.astype(np.float64) ** 2).sum()) for each in grads)))


def squares(grads: Any) -> Array:
    """Return the sum of the squares of each gradient, in float32."""
    return np.asarray([float((each.astype(np.float64) ** 2).sum()) for each in grads], np.float32)


def clip_by_norm(grads: Arrays, most: float, total: float) -> Arrays:
    """Return gradients whose norm is `most` at most, as `clip_grad_norm_` has it.

    >>> clip_by_norm({"w": np.array([3.0, 4.0])}, 1.0, 5.0)["w"].round(3)
    array([0.6, 0.8])
    """
    factor = min(1.0, most / (total + 1e-6))
    return {name: (value * factor).astype(value.dtype) for name, value in grads.items()}
