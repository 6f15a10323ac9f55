"""Losses of `torch.nn.functional`, with their gradients."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from torch_scenarios.errors import DataError
from torch_scenarios.modules.base import Array, Declared

#: how the terms of a loss are put together
REDUCTIONS = ("mean", "sum")


def sum_to(grad: Array, shape: tuple[int, ...]) -> Array:
    """Return the gradient by an array that was broadcast: the sum over what it was spread to."""
    if grad.shape == shape:
        return grad
    grad = grad.sum(axis=tuple(range(grad.ndim - len(shape))))
    spread = (axis for axis, size in enumerate(shape) if size != grad.shape[axis])
    return np.asarray(grad.sum(axis=tuple(spread), keepdims=True))


class Loss(Declared, frozen=True, kw_only=True):
    """One function of `torch.nn.functional`, by torch's name and arguments.

    >>> loss = MseLoss(reduction="sum")
    >>> value, gradient = loss.value(np.array([1.0, 3.0]), np.array([0.0, 0.0]))
    >>> float(value), gradient
    (10.0, array([2., 6.]))

    `reduction` is the classic mistake of data parallelism. Ranks average their gradients, which is
    right for the mean of equal parts. Of a `sum`, the average is the gradient of one process
    divided by the number of ranks.
    """

    name: ClassVar[str]
    reduction: str = "mean"

    @abstractmethod
    def terms(self, given: Array, target: Array) -> tuple[Array, Array]:
        """Return the terms that are summed, and the gradient of their sum by the input."""

    def fit(self, shape: tuple[int, ...], target: tuple[int, ...]) -> None:
        """Raise DataError where an output of a shape does not go with a target of another."""
        try:
            np.broadcast_shapes(shape, target)
        except ValueError:
            message = f"{self.name} of an output of {list(shape)} and a target of {list(target)}"
            raise DataError(message) from None

    def value(self, given: Array, target: Array) -> tuple[Array, Array]:
        """Return the loss, a scalar, and its gradient by the input."""
        terms, grad = self.terms(given, target)
        if self.reduction == "sum":
            return np.asarray(terms.sum(), given.dtype), grad
        count = given.dtype.type(max(1, terms.size))
        return np.asarray(terms.sum() / count, given.dtype), grad / count

    def call(self, torch: Any, given: Any, target: Any) -> Any:
        """Return torch's own."""
        function = getattr(torch.nn.functional, self.name)
        return function(given, target, reduction=self.reduction)


class MseLoss(Loss, frozen=True, kw_only=True):
    """`mse_loss`: squares of differences.

    >>> value, gradient = MseLoss().value(np.array([1.0, 3.0]), np.array([0.0, 0.0]))
    >>> float(value), gradient
    (5.0, array([1., 3.]))
    """

    name = "mse_loss"

    def terms(self, given: Array, target: Array) -> tuple[Array, Array]:
        """(x - y)^2."""
        off = given - target.astype(given.dtype)
        return off * off, sum_to(2 * off, given.shape)


class MeanSquare(MseLoss, frozen=True, kw_only=True):
    """`((x - y) ** 2).mean()` written out, which torch lets a sharded tensor do rightly.

    >>> float(MeanSquare().value(np.array([1.0, 3.0]), np.array([0.0, 0.0]))[0])
    5.0
    """

    name = "((x - y) ** 2).mean()"

    def call(self, torch: Any, given: Any, target: Any) -> Any:
        """Return torch's own difference, square and mean."""
        squares = (given - target) ** 2
        return squares.sum() if self.reduction == "sum" else squares.mean()


class L1Loss(Loss, frozen=True, kw_only=True):
    """`l1_loss`: absolute differences.

    >>> value, gradient = L1Loss().value(np.array([1.0, -3.0]), np.array([0.0, 0.0]))
    >>> float(value), gradient
    (2.0, array([ 0.5, -0.5]))
    """

    name = "l1_loss"

    def terms(self, given: Array, target: Array) -> tuple[Array, Array]:
        """|x - y|."""
        off = given - target.astype(given.dtype)
        return np.abs(off), sum_to(np.sign(off), given.shape)


class CrossEntropy(Loss, frozen=True, kw_only=True):
    """`cross_entropy`: rows of scores, and for each row the class that is right.

    >>> even = np.zeros((1, 2))
    >>> value, gradient = CrossEntropy().value(even, np.array([0]))
    >>> round(float(value), 4), gradient
    (0.6931, array([[-0.5,  0.5]]))
    """

    name = "cross_entropy"

    def fit(self, shape: tuple[int, ...], target: tuple[int, ...]) -> None:
        """Rows of scores, and a class for each row."""
        if len(shape) == 2 and len(target) == 1 and target != shape[:1]:
            message = f"cross_entropy of {shape[0]} rows and {target[0]} classes"
            raise DataError(message)

    def terms(self, given: Array, target: Array) -> tuple[Array, Array]:
        """The log of the sum of a row's powers, less the score of the class."""
        index = target.astype(np.int64)
        if given.ndim != 2 or index.ndim != 1:
            message = "cross_entropy is known here of rows of scores with one class for each row"
            raise DataError(message)
        wrong = index[(index < 0) | (index >= given.shape[1])]
        if wrong.size:
            message = f"cross_entropy of {given.shape[1]} scores a row has no class {wrong[0]}"
            raise DataError(message)
        rows = np.arange(len(index))
        exact = given - given.max(axis=1, keepdims=True)
        powers = np.exp(exact)
        total = powers.sum(axis=1, keepdims=True)
        grad = powers / total
        grad[rows, index] -= 1
        return np.log(total[:, 0]) - exact[rows, index], grad


LOSSES: dict[str, type[Loss]] = {
    each.name: each for each in (MseLoss, MeanSquare, L1Loss, CrossEntropy)
}
