"""Values as numbers: literals become arrays, and arrays are compared without rounding."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.operations.reduction import is_inexact, wide

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runner.trace import Value

#: the largest integer that a double holds
LARGEST = int(sys.float_info.max)


def is_array(value: Value) -> bool:
    """Return whether a value is one tensor, or one element of one."""
    return isinstance(value, np.ndarray | np.generic)


def as_numbers(value: Value) -> NDArray[Any] | None:
    """Return a number, nested lists of numbers or an array as an array; None for anything else.

    Integers beyond 64 bits stay Python's own, so that nothing is rounded before it is compared.
    """
    if is_array(value):
        return np.asarray(value)
    if isinstance(value, range):
        value = list(value)
    if not _numeric(value):
        return None
    try:
        made = np.asarray(value)
    except ValueError:
        return None  # rows of different lengths
    if made.dtype == object:
        made = np.asarray(np.frompyfunc(_finite, 1, 1)(made), dtype=object)
    return made if made.dtype.kind in "biufcVO" else None


def _finite(value: Value) -> Value:
    """Return an integer that a double cannot hold as an infinity; it equals no element anyway."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return math.inf if value > 0 else -math.inf
    return value


def _numeric(value: Value) -> bool:
    if isinstance(value, list | tuple):
        return all(_numeric(item) for item in value)
    return is_array(value) or isinstance(value, bool | int | float | complex)


def exactly(
    numbers: NDArray[Any], got: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Compare exactly: by Python's own numbers where the kinds differ, so that nothing rounds."""
    if numbers.dtype.kind == got.dtype.kind and numbers.dtype.kind in "biu":
        wrong = np.asarray(numbers != got)
        left, right = numbers.astype(np.float64), got.astype(np.float64)
    elif is_inexact(numbers):
        left, right = wide(numbers), got.astype(np.float64)
        wrong = np.asarray(left != right)
    else:
        wrong = np.asarray(numbers.astype(object) != got.astype(object)).astype(bool)
        left, right = numbers.astype(np.float64), got.astype(np.float64)
    return np.asarray(wrong), np.abs(left - right), np.abs(left)


def ratio(errors: NDArray[Any], sizes: NDArray[Any]) -> NDArray[Any]:
    """Return relative errors; what is relative to zero is not finite."""
    with np.errstate(all="ignore"):
        return np.asarray(errors / sizes)


def largest(errors: NDArray[Any], wrong: NDArray[Any]) -> float | None:
    """Return the largest finite error among those that are wrong."""
    chosen = errors[wrong]
    chosen = chosen[np.isfinite(chosen)]
    return float(chosen.max()) if chosen.size else None
