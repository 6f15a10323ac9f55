"""What is close enough to one process, and what is said of what is not: by its numbers."""

from __future__ import annotations

import numpy as np
import pytest
from sampling import sampled

from torch_scenarios.modules.attention import CausalSelfAttention
from torch_scenarios.modules.base import Layer
from torch_scenarios.modules.batch_norm import BatchNorm1d
from torch_scenarios.modules.layer_norm import LayerNorm
from torch_scenarios.modules.linear import Linear
from torch_scenarios.modules.optimizer import SGD, Adam, AdamW, Optimizer, UpdateBound
from torch_scenarios.modules.relu import ReLU
from torch_scenarios.modules.rms_norm import RMSNorm
from torch_scenarios.modules.sequential import Residual, Sequential
from torch_scenarios.strategies.tolerance import (
    EPSILON,
    bound_of,
    factor,
    measure_distance,
    tolerance,
    unequal,
)

EXACT = np.array([1.0, -2.0, 4.0])
#: the units in the last place that any value may be off by: four of its largest element
LAST = 4 * 4 * EPSILON


def _off(by: float) -> np.ndarray:
    off: np.ndarray = EXACT + np.array([0.0, by, 0.0])
    return off


@pytest.mark.parametrize(
    ("rounded", "shaken", "bit", "allowed"),
    [
        (0.0, 0.0, 0.0, LAST),
        (1e-6, 2e-6, 0.0, 8 * 2e-6 + LAST),
        (2e-6, 1e-6, 0.0, 8 * 2e-6 + LAST),
        (0.0, 0.0, 1e-3, 8 * 4 * 1e-3 + LAST),
        # an optimizer that is off by itself widens nothing: forward and backward explain 32 times
        (1.0, 1e-6, 0.0, 8 * 32 * (1e-6 + 4 * EPSILON) + LAST),
    ],
)
def test_rounding_decides_how_far_a_value_may_be_off(
    rounded: float, shaken: float, bit: float, allowed: float
) -> None:
    found = tolerance(EXACT, _off(rounded), _off(-shaken), bit)
    assert found == pytest.approx(allowed, rel=1e-6)


def test_parts_that_are_rounded_are_off_by_what_they_are_parts_of() -> None:
    nothing, terms = np.zeros(3), np.array([0.0, 2.0, 1.0])
    found = tolerance(nothing, nothing, nothing, 2.0**-7, terms)
    assert list(np.asarray(found) - 4 * 2 * EPSILON) == pytest.approx(list(terms * 2.0**-7))
    # most of what a gradient is made of is rounded alike: three last bits of its largest element
    found = tolerance(EXACT, EXACT, EXACT, 2.0**-7, np.zeros(3))
    assert list(np.asarray(found)) == pytest.approx(list(12 * 2.0**-7 + LAST + np.abs(EXACT) / 128))


def test_what_float64_has_decides_as_well() -> None:
    """Eight times the largest of what is finite."""
    exact = np.array([1.0, 2.0, np.inf, np.nan])
    assert measure_distance(np.array([1.5, 1.0, 3.0, 4.0]), exact) == 8
    assert measure_distance(exact[2:], exact[2:]) == 0


def test_what_overflows_widens_nothing() -> None:
    exact = np.array([1.0, np.inf, np.nan])
    assert tolerance(exact, exact, exact) == pytest.approx(4 * EPSILON)
    assert tolerance(exact[1:], exact[1:], exact[1:]) == 0.0
    assert tolerance(np.zeros(0), np.zeros(0), np.zeros(0)) == 0.0


@pytest.mark.parametrize("by", [0.9e-3, -0.9e-3])
def test_what_is_within_the_tolerance_is_equal(by: float) -> None:
    assert unequal(_off(by).astype(np.float32), EXACT, 1e-3) is None


@pytest.mark.parametrize(
    ("mine", "words"),
    [
        (_off(1.1e-3), "-1.9989 at [1], where it has -2"),
        (np.array([1.0, -2.0, np.nan]), "nan at [2], where it has 4"),
        (3 * EXACT, "12 at [2], where it has 4; a factor of 3.000 everywhere"),
        (-EXACT, "-4 at [2], where it has 4; a factor of -1.000 everywhere"),
        (EXACT[:2], "has shape [2], and one process has [3]"),
    ],
)
def test_the_element_that_is_off_most_is_named(mine: np.ndarray, words: str) -> None:
    prose = unequal(mine.astype(np.float32), EXACT, 1e-3)
    assert prose is not None
    assert prose.endswith(words)


def test_infinities_and_nan_of_both_are_equal() -> None:
    both = np.array([np.inf, -np.inf, np.nan, 1.0])
    assert unequal(both.astype(np.float32), both, 0.0) is None
    assert unequal(-both.astype(np.float32), both, 0.0) is not None


def test_one_factor_is_one_of_all_elements_that_count() -> None:
    assert factor(2 * EXACT, EXACT, 1e-6) == pytest.approx(2)
    assert factor(EXACT * [2, 2, 2.01], EXACT, 1e-6) is None
    # 1e-4 is less than a hundred tolerances: nothing is known of its ratio
    small = np.append(EXACT, 1e-4)
    assert factor(small * [2, 2, 2, 7], small, 1e-5) == pytest.approx(2)
    assert factor(1.0005 * EXACT, EXACT, 1e-6) is None
    assert factor(np.zeros(3), np.zeros(3), 1e-6) is None


def test_what_cancels_is_off_by_a_part_of_its_terms() -> None:
    nothing = np.zeros(3)
    assert tolerance(nothing, nothing, nothing) == 0.0
    terms = np.array([0.0, 2.0, 1.0])
    assert tolerance(nothing, nothing, nothing, 0.0, terms) == pytest.approx(4 * 2 * EPSILON)


def test_another_implementation_is_off_the_other_way() -> None:
    mine, most = EXACT + np.array([0.0, 0.5, 9.0]), np.array([1.0, 1.0, 2.0])
    assert list(bound_of(mine, EXACT, most)) == [1.0, 1.5, 4.0]
    assert list(bound_of(mine, EXACT, 0.0)) == [0.0, 0.0, 0.0]
    assert list(bound_of(mine, EXACT[:2], 1.0)) == [1.0, 1.0, 1.0]


# -------------------------------------------------------------------------------------------------
# What the terms of a gradient amount to.


LAYERS = Sequential(
    layers=(
        ("a", CausalSelfAttention(embed_dim=4, num_heads=2)),
        ("act", ReLU()),
        ("r", Residual(layers=(("fc", Linear(in_features=4, out_features=4)),))),
        ("n", LayerNorm(normalized_shape=4)),
    )
)


NORMS: dict[str, Layer] = {
    "LayerNorm": LayerNorm(normalized_shape=2),
    "RMSNorm": RMSNorm(normalized_shape=2),
    "BatchNorm1d": BatchNorm1d(num_features=2),
}


def test_terms_are_those_of_each_row_without_their_signs() -> None:
    rng = np.random.default_rng(1)
    params = {name: rng.normal(size=shape) for name, shape in LAYERS.shapes().items()}
    _, saved = LAYERS.forward(params, rng.normal(size=(3, 2, 4)))
    dy = rng.normal(size=(3, 2, 4))
    dx, grads, sizes, _ = LAYERS.weigh(params, saved, dy)
    plain = LAYERS.backward(params, saved, dy)
    assert np.array_equal(dx, plain[0])
    assert list(grads) == list(plain[1])
    assert all(np.array_equal(value, plain[1][name]) for name, value in grads.items())
    assert sizes.keys() == grads.keys()
    assert all(np.all(sizes[name] >= np.abs(grads[name]) * (1 - 1e-12)) for name in grads)
    # by what all keys have in common there is no gradient, and terms there are
    assert np.abs(grads["a.k.bias"]).max() < 1e-14
    assert sizes["a.k.bias"].min() > 1e-4
    assert np.allclose(sizes["n.bias"], np.abs(dy).sum(axis=(0, 1)))


@pytest.mark.parametrize("norm", NORMS)
def test_terms_of_a_norms_input_are_those_before_they_cancel(norm: str) -> None:
    """Of two features a LayerNorm has the signs alone, and next to no gradient."""
    layer = NORMS[norm]
    network = Sequential(layers=(("fc", Linear(in_features=3, out_features=2)), ("norm", layer)))
    rng = np.random.default_rng(1)
    params = {name: rng.normal(size=shape) for name, shape in network.shapes().items()}
    _, saved = network.forward(params, rng.normal(size=(4, 3)))
    dy = rng.normal(size=(4, 2))
    rows, factor = saved[1][:2]
    at_most = np.abs(factor * dy * params["norm.weight"])
    dx, _, sizes, _ = network.weigh(params, saved, dy)
    mine = layer.terms({"weight": params["norm.weight"]}, saved[1], np.abs(dy))
    assert np.all(mine >= at_most)
    assert np.all(mine <= at_most.sum() * (1 + 2 * np.abs(rows).max() ** 2))
    assert np.allclose(sizes["fc.bias"], mine.sum(axis=0))
    assert np.allclose(sizes["fc.weight"], mine.T @ np.abs(saved[0]))
    assert np.all(np.abs(dx) <= mine @ np.abs(params["fc.weight"]))


# -------------------------------------------------------------------------------------------------
# How far a step may lead whose gradient is off: held against steps by what it may be instead.


OPTIMIZERS: dict[str, Optimizer] = {
    "SGD": SGD(lr=0.1, momentum=0.9, weight_decay=0.1),
    "Nesterov": SGD(lr=0.1, momentum=0.9, nesterov=True),
    "dampened": SGD(lr=0.1, momentum=0.9, dampening=0.4),
    "overdamped": SGD(lr=0.1, momentum=0.9, dampening=1.5),
    "Adam": Adam(lr=0.1),
    "Adam with decay": Adam(lr=0.1, weight_decay=0.1),
    "AdamW": AdamW(lr=0.1, weight_decay=0.5),
    "quick": Adam(lr=0.1, betas=(0.0, 0.5)),
    "forgetful": Adam(lr=0.1, betas=(0.5, 0.0)),
    "hardly any eps": Adam(lr=0.1, eps=1e-30),
}


def _walked(
    optimizer: Optimizer, grads: list[np.ndarray], errors: list[np.ndarray]
) -> tuple[np.ndarray, UpdateBound | None]:
    state: dict[str, object] = {}
    param, reached = np.full(grads[0].shape, 0.5), None
    for grad, error in zip(grads, errors, strict=True):
        before, param = param, optimizer.step(param, grad, state)
        reached = optimizer.reach(before, grad, error, state, reached)
    return param, reached


@pytest.mark.parametrize("name", sampled(list(OPTIMIZERS), 2))
def test_no_gradients_within_their_errors_lead_further(name: str) -> None:
    optimizer, rng = OPTIMIZERS[name], np.random.default_rng(3)
    for steps in (1, 2, 5):
        # elements of all kinds: of a known direction, of none, and without a gradient
        scale = np.array([1.0, 1e-3, 1e-6, 0.0, 0.0])
        grads = [rng.normal(size=5) * scale for _ in range(steps)]
        errors = [np.array([1e-5, 1e-5, 1e-5, 1e-5, 0.0])] * steps
        param, reached = _walked(optimizer, grads, errors)
        assert reached is not None
        for _ in range(200):
            signs = [rng.choice([-1.0, 0.0, 1.0, 0.5], 5) for _ in range(steps)]
            moved = [grad + sign * errors[0] for grad, sign in zip(grads, signs, strict=True)]
            other, _ = _walked(optimizer, moved, errors)
            assert np.all(np.abs(other - param) <= reached.off * (1 + 1e-9) + 1e-15)


def test_an_error_that_decides_the_direction_opens_an_element() -> None:
    grads, errors = [np.array([1.0, 1e-7, 0.0, 0.0])], [np.array([1e-6, 1e-6, 1e-6, 0.0])]
    _, reached = _walked(OPTIMIZERS["AdamW"], grads, errors)
    assert reached is not None
    assert list(reached.open) == [False, True, True, False]
    # the first step has the size of one gradient, whatever that is
    assert reached.off[0] < 1e-9
    assert list(reached.off[1:]) == pytest.approx([0.191, 0.1, 0.0], rel=2e-2)
    # an error that is known for long is small beside what the mean has grown to
    _, later = _walked(OPTIMIZERS["AdamW"], grads * 9, errors * 9)
    assert later is not None
    assert list(later.open) == [False, True, True, False]


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.9), (0.9, 0.5), (0.0, 0.5), (0.5, 0.0)])
def test_no_step_of_adam_is_longer_than_its_longest(betas: tuple[float, float]) -> None:
    optimizer, rng = Adam(lr=1.0, betas=betas, eps=0.0), np.random.default_rng(5)
    for count in (1, 2, 7):
        state: dict[str, object] = {}
        param = np.zeros(5000)
        for _ in range(count):
            before, param = param, optimizer.step(param, rng.normal(size=5000), state)
        longest = optimizer.longest(count)
        assert np.abs(param - before).max() <= longest * (1 + 1e-9)
        if count == 1:
            assert longest == pytest.approx(1.0)
