"""What is close enough to one process, and what is said of what is not: by its numbers."""

from __future__ import annotations

import numpy as np
import pytest

from runner.strategies.base import EPSILON, factor, tolerance, unequal

EXACT = np.array([1.0, -2.0, 4.0])
#: the units in the last place that any value may be off by: four of its largest element
LAST = 4 * 4 * EPSILON


def _off(by: float) -> np.ndarray:
    off: np.ndarray = EXACT + np.array([0.0, by, 0.0])
    return off


@pytest.mark.parametrize(
    ("rounded", "shaken", "coarse", "allowed"),
    [
        (0.0, 0.0, 0.0, LAST),
        (1e-6, 2e-6, 0.0, 8 * 2e-6 + LAST),
        (2e-6, 1e-6, 0.0, 8 * 2e-6 + LAST),
        (0.0, 0.0, 1e-3, 8 * 1e-3 + LAST),
        # an optimizer that is off by itself widens nothing: forward and backward explain 32 times
        (1.0, 1e-6, 0.0, 8 * 32 * (1e-6 + 4 * EPSILON) + LAST),
    ],
)
def test_rounding_decides_how_far_a_value_may_be_off(
    rounded: float, shaken: float, coarse: float, allowed: float
) -> None:
    found = tolerance(EXACT, _off(rounded), _off(-shaken), coarse)
    assert found == pytest.approx(allowed, rel=1e-6)


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
