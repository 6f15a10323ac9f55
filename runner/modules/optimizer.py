"""Optimizers of `torch.optim`: what a step makes of a parameter and its gradient."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import MutableMapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from runner.modules.base import Array

#: what an optimizer keeps of one parameter, by torch's names
State: TypeAlias = MutableMapping[str, Any]


class Optimizer(ABC):
    """One class of `torch.optim`, by torch's name and arguments: a frozen dataclass of these."""

    name: ClassVar[str]

    @abstractmethod
    def step(self, param: Array, grad: Array, state: State) -> Array:
        """Return the parameter after one step, in its dtype; `state` is changed in place."""

    @abstractmethod
    def state_bytes(self, numel: int, itemsize: int) -> int:
        """Return the bytes that it keeps of a parameter, once it has stepped."""

    def build(self, torch: Any, params: Any) -> Any:
        """Return torch's own."""
        return getattr(torch.optim, self.name)(params, **self.arguments())

    def arguments(self) -> dict[str, Any]:
        """Return torch's arguments: `betas` are floats, also where a file says 0."""
        given = asdict(self)  # type: ignore[call-overload]
        return {
            name: tuple(map(float, value)) if isinstance(value, tuple) else value
            for name, value in given.items()
        }


def not_below_zero(optimizer: Optimizer, *names: str) -> None:
    """Raise ValueError where an argument is below zero."""
    for name in names:
        if getattr(optimizer, name) < 0:
            message = f"`{name}` cannot be {getattr(optimizer, name)}: it is not below 0"
            raise ValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class SGD(Optimizer):
    """`torch.optim.SGD`."""

    name = "SGD"
    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        """Refuse what torch refuses, with ValueError."""
        not_below_zero(self, "lr", "momentum", "weight_decay")
        if self.nesterov and not self.momentum:
            message = "`nesterov` wants a momentum"
            raise ValueError(message)

    def step(self, param: Array, grad: Array, state: State) -> Array:
        """Follow the gradient, or its running sum."""
        kind = param.dtype.type
        if self.weight_decay:
            grad = grad + kind(self.weight_decay) * param
        if self.momentum:
            kept = state.get("momentum_buffer")
            kept = grad.copy() if kept is None else kind(self.momentum) * kept + grad
            state["momentum_buffer"] = kept
            grad = grad + kind(self.momentum) * kept if self.nesterov else kept
        return np.asarray(param - kind(self.lr) * grad, param.dtype)

    def state_bytes(self, numel: int, itemsize: int) -> int:
        """The running sum, where there is one."""
        return numel * itemsize if self.momentum else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam(Optimizer):
    """`torch.optim.Adam`."""

    name = "Adam"
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

    def _decayed(self, param: Array, grad: Array) -> tuple[Array, Array]:
        return param, grad + param.dtype.type(self.weight_decay) * param

    def step(self, param: Array, grad: Array, state: State) -> Array:
        """Follow the mean of the gradient, over the root of the mean of its square."""
        kind = param.dtype.type
        first, second = self.betas
        if self.weight_decay:
            param, grad = self._decayed(param, grad)
        count = state["step"] = state.get("step", 0) + 1
        zero = np.zeros_like(param)
        mean = state["exp_avg"] = kind(first) * state.get("exp_avg", zero) + kind(1 - first) * grad
        square = kind(second) * state.get("exp_avg_sq", zero) + kind(1 - second) * grad * grad
        state["exp_avg_sq"] = square
        root = np.sqrt(square) / kind((1 - second**count) ** 0.5) + kind(self.eps)
        return np.asarray(param - kind(self.lr / (1 - first**count)) * mean / root, param.dtype)

    def state_bytes(self, numel: int, itemsize: int) -> int:
        """Two means, and the count of the steps in a float32."""
        return 2 * numel * itemsize + 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW(Adam):
    """`torch.optim.AdamW`: the weight decays by itself, not through the gradient."""

    name = "AdamW"
    weight_decay: float = 1e-2

    def _decayed(self, param: Array, grad: Array) -> tuple[Array, Array]:
        return param * param.dtype.type(1 - self.lr * self.weight_decay), grad


OPTIMIZERS: dict[str, type[Optimizer]] = {each.name: each for each in (SGD, Adam, AdamW)}
