"""How far rounding may lead in a step of powerSGD_hook is bounded, and by no more than need be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from sampling import sampled

from torch_scenarios.operations.base import Caller, Group
from torch_scenarios.strategies.comm_hooks import Bucket
from torch_scenarios.strategies.comm_hooks.power_sgd import (
    BucketState,
    PowerSGD,
    PowerSide,
    bound_of_step,
    orthogonal,
)

#: ranks, rows and columns of the matrices
SHAPE = (2, 10, 12)
TWO = Group(key="two", name="two", ranks=(0, 1), timeout_s=1.0)


def _matrices(columns: int, ratio: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return matrices of ranks, in float32, that add up to one of a rank, and what is carried.

    Each of its directions is so many times longer than the next one.
    """
    rng = np.random.default_rng(seed)
    ranks, rows, width = SHAPE
    left = np.linalg.qr(rng.normal(size=(rows, columns)))[0]
    right = np.linalg.qr(rng.normal(size=(width, columns)))[0]
    total = left * ratio ** -np.arange(columns, dtype=float) @ right.T
    apart = 0.3 * rng.normal(size=(rows, 1)) @ right.T[:1]
    held = np.stack([total / ranks + apart, total / ranks - apart]).astype(np.float32)
    return held[:, None], rng.normal(size=(1, width, columns)).astype(np.float32)


def _step(held: np.ndarray, q: np.ndarray, order: np.ndarray, epsilon: float) -> np.ndarray:
    """Return what a step makes, in the dtype that is given, adding up in some order."""
    ranks, right = held.shape[0], orthogonal(q, epsilon)
    p = sum(each[:, :, order] @ right[:, order] for each in held[::-1])
    p = orthogonal(np.asarray(p), epsilon)
    back = sum(each.swapaxes(1, 2) @ p for each in held) / held.dtype.type(ranks)
    return np.asarray(p @ np.asarray(back).swapaxes(1, 2))


@pytest.mark.parametrize("epsilon", [0, 0.01])
@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("ratio", sampled([1.0, 30.0, 1e3, 1e5], 2))
def test_no_order_of_addition_leads_further(ratio: float, columns: int, epsilon: float) -> None:
    largest = 0.0
    for seed in range(40):
        held, q = _matrices(columns, ratio, seed)
        exact = held.astype(np.float64), q.astype(np.float64)
        bound = bound_of_step(*exact, epsilon)
        wanted = _step(*exact, np.arange(SHAPE[2]), epsilon)
        for order in (np.arange(SHAPE[2]), np.arange(SHAPE[2])[::-1]):
            off = np.abs(_step(held, q, order, epsilon) - wanted)
            assert np.all(off <= bound)
            largest = max(largest, float((off / bound).max()))
    # a bound that is far above what rounding does would hide what is wrong
    assert largest > (1e-2 if columns < 3 or ratio == 1 else 1e-7)


def test_a_direction_that_is_rounding_alone_is_bounded_by_the_matrix() -> None:
    held, q = (each.astype(np.float64) for each in _matrices(1, 1.0, 0))
    bound = bound_of_step(held, np.concatenate([q, q], axis=2), 0)
    lengths = np.linalg.norm(held.mean(axis=0)[0], axis=0)
    assert np.all(bound <= 2 * lengths + 1e-5)
    assert bound.max() > 0.1 * lengths.max()


def test_of_nothing_nothing_is_off() -> None:
    held, q = _matrices(2, 1.0, 0)
    assert np.all(bound_of_step(0.0 * held.astype(np.float64), q.astype(np.float64), 0) == 0)


def test_what_was_lost_before_is_in_the_step() -> None:
    """A gradient that takes back what was lost is nothing; without error feedback it is itself."""
    held, q = (each.astype(np.float64) for each in _matrices(1, 1.0, 0))
    shape = held.shape[2:]
    for feedback in (True, False):
        hook = PowerSGD(start_powerSGD_iter=2, min_compression_rate=1, use_error_feedback=feedback)
        caller = cast("Caller", SimpleNamespace(rank=0))
        side = PowerSide(hook, TWO, caller, {})
        given = [Bucket(number=0, buckets=1, shapes=(shape,), flat=each.ravel()) for each in held]
        lost = [BucketState(error=-each.flat, q=q.ravel()) for each in given]
        found = side.bound(given, lost)
        assert found.shape == (shape[0] * shape[1],)
        assert bool(found.any()) is not feedback
        assert found.max() < 1e-4


def test_a_gradient_that_travels_whole_is_off_by_its_sum() -> None:
    """It saves nothing as two thin matrices."""
    held, _ = (each.astype(np.float64) for each in _matrices(1, 1.0, 0))
    shape = held.shape[2:]
    caller = cast("Caller", SimpleNamespace(rank=0))
    side = PowerSide(PowerSGD(matrix_approximation_rank=12), TWO, caller, {})
    given = [Bucket(number=0, buckets=1, shapes=(shape,), flat=each.ravel()) for each in held]
    found = side.bound(given, [BucketState(q=np.zeros(0))] * 2)
    assert np.allclose(found, np.abs(held).sum(axis=0).ravel() * 2.0**-23)
