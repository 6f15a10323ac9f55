"""Optimizers of `torch.optim`: what a step makes of a parameter and its gradient."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, MutableMapping
from typing import Any, ClassVar, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from torch_scenarios.modules.base import Array, Declared

#: what an optimizer keeps of one parameter, by torch's names
State: TypeAlias = MutableMapping[str, Any]

#: how many times a mean has to be what it may be off by, for its step to be known
KNOWN = 4.0


class UpdateBound(Struct, frozen=True, kw_only=True):
    """How far off a parameter may be by what its gradients are off by, element by element.

    `off` is how far, either way; so is `mean` for the running mean, or sum, of the gradients; `low`
    and `high` are the least and the most that the mean of their squares may be, where there is one.
    `open` are the elements of which not even the direction of a step is known.

    With SGD, multiply the gradient's error by the learning rate. Adam divides by the root of the
    mean of squares: a gradient of 1e-9 that is off by 2e-9 moves the weight by the learning rate,
    up or down. Such an element is `open`, for no tolerance tells a right step from a wrong one
    (decision 55).

    >>> UpdateBound.start(np.zeros(2)).off
    array([0., 0.])
    """

    off: Array
    mean: Array
    low: Array
    high: Array
    open: Array

    @staticmethod
    def start(param: Array) -> UpdateBound:
        """Return what no step has led to."""
        zero = np.zeros_like(param)
        return UpdateBound(
            off=zero, mean=zero, low=zero, high=zero, open=np.zeros(param.shape, bool)
        )


class Optimizer(Declared, frozen=True):
    """One class of `torch.optim`, by torch's name and arguments, which are its fields.

    >>> sorted(OPTIMIZERS)
    ['Adam', 'AdamW', 'SGD']

    A `step` takes one parameter at a time, and a `state` that it changes in place. A rank that has
    a part of a parameter (FSDP, ZeRO) has that part of the state; since each element is stepped
    alone, that gives what one process has.
    """

    name: ClassVar[str]
    #: arguments of torch's that no step here knows
    left_out: ClassVar[Mapping[str, str]] = {
        "params": "it has the parameters of its model here, and no others",
        "maximize": "a loss is minimized here",
        **dict.fromkeys(
            ("foreach", "fused", "capturable", "differentiable"),
            "how torch computes a step is its own choice here",
        ),
    }

    @abstractmethod
    def step(self, param: Array, grad: Array, state: State) -> Array:
        """Return the parameter after one step, in its dtype; `state` is changed in place."""

    @abstractmethod
    def reach(
        self, param: Array, grad: Array, error: Array, state: State, reached: UpdateBound | None
    ) -> UpdateBound:
        """Return how far a step may lead whose gradient is off by up to `error`, in its shape.

        `param` and `grad` are those of the step, `state` what there is after it, and `reached`
        what the steps before it may have led to; None at the first.
        """

    def build(self, torch: Any, params: Any) -> Any:
        """Return torch's own, over parameters that may be tensors, DTensors or both.

        On a GPU torch steps all of them by one call of `_foreach_`, which refuses both in one list
        (torch 2.14.1: "got mixed torch.Tensor and DTensor"); they step one by one then. So do those
        whose gradients that call would change, see `writes_gradients`.
        """
        stepped = list(params)
        kinds = {hasattr(each, "placements") for each in stepped}
        one_by_one = {"foreach": False} if len(kinds) > 1 or self.writes_gradients else {}
        return getattr(torch.optim, self.name)(stepped, **self.arguments(), **one_by_one)

    @property
    def writes_gradients(self) -> bool:
        """Whether torch's step of several parameters at once stores into their gradients."""
        return False

    def arguments(self) -> dict[str, Any]:
        """Return torch's arguments: `betas` are floats, also where a file says 0."""
        given = asdict(self)
        return {
            name: tuple(map(float, value)) if isinstance(value, tuple) else value
            for name, value in given.items()
        }


def not_below_zero(optimizer: Optimizer, *names: str) -> None:
    """Raise ValueError where an argument is below zero."""
    for name in names:
        if getattr(optimizer, name) < 0:
            message = f"`{name}` cannot be {getattr(optimizer, name)}: it is 0 or more"
            raise ValueError(message)


class SGD(Optimizer, frozen=True, kw_only=True):
    """`torch.optim.SGD`.

    >>> state: dict[str, object] = {}
    >>> sgd = SGD(lr=0.5, momentum=0.5)
    >>> first = sgd.step(np.array([1.0]), np.array([1.0]), state)
    >>> first, sgd.step(first, np.array([1.0]), state)
    (array([0.5]), array([-0.25]))

    The first step has no momentum yet: torch begins it with the gradient, without `dampening`.
    """

    name = "SGD"
    lr: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        """Refuse what torch refuses, with ValueError."""
        not_below_zero(self, "lr", "momentum", "weight_decay")
        if self.nesterov and (not self.momentum or self.dampening):
            message = "`nesterov` wants a momentum, and no dampening"
            raise ValueError(message)

    @property
    def writes_gradients(self) -> bool:
        """Whether it is Nesterov's without weight decay.

        `_multi_tensor_sgd` of torch/optim/sgd.py adds the momentum to the gradients themselves
        (2.14.1: `torch._foreach_add_(device_grads, bufs, alpha=momentum)`); weight decay makes a
        list of its own first. Parameters that step one by one keep their gradients.
        """
        return self.nesterov and not self.weight_decay

    def step(self, param: Array, grad: Array, state: State) -> Array:
        """Follow the gradient, or its running sum."""
        kind = param.dtype.type
        if self.weight_decay:
            grad = grad + kind(self.weight_decay) * param
        if self.momentum:
            kept = state.get("momentum_buffer")
            fresh = grad if kept is None else kind(1 - self.dampening) * grad
            kept = fresh.copy() if kept is None else kind(self.momentum) * kept + fresh
            state["momentum_buffer"] = kept
            grad = grad + kind(self.momentum) * kept if self.nesterov else kept
        return np.asarray(param - kind(self.lr) * grad, param.dtype)

    def reach(
        self, param: Array, grad: Array, error: Array, state: State, reached: UpdateBound | None
    ) -> UpdateBound:
        """Follow the error as the gradient is followed: a step is linear in it."""
        known = reached or UpdateBound.start(param)
        error = error + self.weight_decay * known.off
        fresh = error if reached is None else abs(1 - self.dampening) * error
        mean = self.momentum * known.mean + fresh
        error = error + self.momentum * mean if self.nesterov else mean
        return replace(known, off=known.off + self.lr * error, mean=mean)


class Adam(Optimizer, frozen=True, kw_only=True):
    """`torch.optim.Adam`.

    >>> Adam(lr=0.5).step(np.array([1.0, 1.0]), np.array([1e-3, 5.0]), {}).round(3)
    array([0.5, 0.5])

    The first step is the learning rate, no matter how large the gradient is: gradients that are
    wrong by a factor (a sum in place of a mean) give the same weights at first. So a scenario that
    is to find such a mistake looks at the gradient, or takes SGD.
    """

    name = "Adam"
    left_out: ClassVar[Mapping[str, str]] = {
        **Optimizer.left_out,
        "amsgrad": "the largest of the means so far is not kept here",
        "decoupled_weight_decay": "that is AdamW here",
    }
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what torch refuses, with ValueError."""
        not_below_zero(self, "lr", "eps", "weight_decay")
        if len(self.betas) != 2 or not all(0 <= each < 1 for each in self.betas):
            message = f"`betas` are two numbers from 0 to below 1, not {list(self.betas)}"
            raise ValueError(message)

    def _decay(self, param: Array, grad: Array) -> tuple[Array, Array]:
        return param, grad + param.dtype.type(self.weight_decay) * param

    def step(self, param: Array, grad: Array, state: State) -> Array:
        """Follow the mean of the gradient, over the root of the mean of its square."""
        kind = param.dtype.type
        first, second = self.betas
        if self.weight_decay:
            param, grad = self._decay(param, grad)
        count = state["step"] = state.get("step", 0) + 1
        zero = np.zeros_like(param)
        mean = state["exp_avg"] = kind(first) * state.get("exp_avg", zero) + kind(1 - first) * grad
        square = kind(second) * state.get("exp_avg_sq", zero) + kind(1 - second) * grad * grad
        state["exp_avg_sq"] = square
        root = np.sqrt(square) / kind((1 - second**count) ** 0.5) + kind(self.eps)
        return np.asarray(param - kind(self.lr / (1 - first**count)) * mean / root, param.dtype)

    def reach(
        self, param: Array, grad: Array, error: Array, state: State, reached: UpdateBound | None
    ) -> UpdateBound:
        """Let both means be anywhere that the gradients allow, after the first step each by itself.

        A step follows the direction of a mean, however small that is: where rounding decides
        about its sign it is a whole step, either way. It is never longer than it can be made by
        any gradients (:meth:`longest`).
        """
        first, second = self.betas
        known = reached or UpdateBound.start(param)
        off = known.off
        if self.weight_decay:
            _, grad = self._decay(param, grad)
            off, error = self._decay_off(off, error)
        mean, count = state["exp_avg"], state["step"]
        off_mean = first * known.mean + (1 - first) * error
        size = np.abs(grad)
        low = second * known.low + (1 - second) * np.maximum(size - error, 0) ** 2
        high = second * known.high + (1 - second) * (size + error) ** 2
        scale = (1 - second**count) ** 0.5
        near, now, far = (
            np.sqrt(each) / scale + self.eps for each in (low, state["exp_avg_sq"], high)
        )
        longest = self.longest(count) * (1 - first**count)
        with np.errstate(all="ignore"):
            ways = []
            for way, end in ((-1, mean - off_mean), (1, mean + off_mean)):
                # the first step has one gradient in both means
                own = np.abs(end) / (1 - first) + self.eps
                root = own if count == 1 else np.where(end * way > 0, near, far)
                ways.append(np.where(end == 0, 0.0, end / root))
            here = np.where(mean == 0, 0.0, mean / now)
            least, most = (np.clip(each, -longest, longest) for each in ways)
            rate = self.lr / (1 - first**count)
            off = off + rate * np.maximum(np.maximum(most - here, here - least), 0.0)
        return UpdateBound(
            off=np.nan_to_num(off, nan=0.0, posinf=0.0),
            mean=off_mean,
            low=low,
            high=high,
            open=(off_mean > 0) & (off_mean * KNOWN >= np.abs(mean)),
        )

    def _decay_off(self, off: Array, error: Array) -> tuple[Array, Array]:
        return off, error + self.weight_decay * off

    def longest(self, count: int) -> float:
        """Return the most that the mean can be of the root of the mean of the squares.

        Both means have weights that add up to 1, a and b; by Cauchy and Schwarz the sum of a g is
        at most the root of the sum of a^2 / b, times that of the sum of b g^2.
        """
        first, second = self.betas
        if second == 0:
            return 1.0 if first == 0 or count == 1 else math.inf
        ratios = (first * first / second) ** np.arange(count, dtype=np.float64)
        scale = (1 - first) ** 2 * (1 - second**count) / ((1 - first**count) ** 2 * (1 - second))
        return math.sqrt(scale * float(ratios.sum()))


class AdamW(Adam, frozen=True, kw_only=True):
    """`torch.optim.AdamW`: the weight decays by itself, not through the gradient.

    >>> decayed = AdamW(lr=0.5, weight_decay=0.5).step(np.array([1.0]), np.array([0.0]), {})
    >>> decayed
    array([0.75])
    """

    name = "AdamW"
    weight_decay: float = 1e-2

    def _decay(self, param: Array, grad: Array) -> tuple[Array, Array]:
        return param * param.dtype.type(1 - self.lr * self.weight_decay), grad

    def _decay_off(self, off: Array, error: Array) -> tuple[Array, Array]:
        return off * abs(1 - self.lr * self.weight_decay), error


OPTIMIZERS: dict[str, type[Optimizer]] = {each.name: each for each in (SGD, Adam, AdamW)}
