"""Numbers and nested lists -> NumPy arrays: what YAML's data, and a list of numbers, mean.

A literal is exact or refused: rows of one length, integers in the dtype's range, no fractions in
an integer dtype. Nothing here knows of torch; the torch executor converts what is made here.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.language.budget import too_large
from runner.language.libraries import NUMPY_DTYPES
from runner.language.promotion import NARROW, integer_range, is_exact, kind

if TYPE_CHECKING:
    from runner.language.arithmetic import Value

_EXACT_KINDS = "biu"


def from_data(data: Value, dtype: str, max_elements: int) -> np.ndarray[Any, Any]:
    """Return a new array of that dtype; ValueError or TypeError says what does not fit."""
    _police_size(data, max_elements)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy 1 only warned of rows that differ in length
            found = np.asarray(data)
    except (ValueError, Warning):
        message = "its rows differ in length or in depth"
        raise ValueError(message) from None
    if found.dtype.kind == "O":
        found = _of_objects(found, dtype)
    elif found.dtype.kind not in "biufc":
        message = "text stands where numbers are wanted"
        raise TypeError(message)
    return fitted(found, dtype)


def fitted(found: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Return an array of numbers as a new one of that dtype; ValueError where one does not fit."""
    if found.dtype.kind == "c" and kind(dtype) != "complex":
        raise ValueError(unreal(dtype))
    if found.size and is_exact(dtype) and dtype != "bool":
        _police_integers(found, dtype)
    with np.errstate(all="ignore"):
        if dtype in NARROW:
            found = found.astype(np.float32)
        return np.array(found, dtype=NUMPY_DTYPES[dtype])


def unreal(dtype: str) -> str:
    """Say that a complex number is wanted in a dtype that has no imaginary part."""
    return f"a complex number does not fit {dtype}; state `dtype: complex64`"


def _police_size(data: Value, max_elements: int) -> None:
    """Refuse what would be too large, by the lengths along the first items."""
    count, level = 1, data
    while isinstance(level, list | tuple | range):
        count *= len(level)
        if count > max_elements:
            raise ValueError(too_large(count, max_elements))
        if not level:
            return
        level = level[0]


def _of_objects(found: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Return what NumPy takes for objects: integers beyond 64 bits, None, or nonsense."""
    for item in found.flat:
        if item is None:
            message = "a part of it has no value on this rank"
            raise ValueError(message)
        if not isinstance(item, int | float | complex):
            message = f"{type(item).__name__} stands where a number is wanted"
            raise TypeError(message)
    if is_exact(dtype):
        low, high = integer_range(dtype)
        wrong = [item for item in found.flat if not low <= item <= high]
        if wrong:
            raise ValueError(_unfit(wrong[0], dtype))
        return found.astype(NUMPY_DTYPES[dtype])
    return found.astype(np.complex128 if kind(dtype) == "complex" else np.float64)


def _police_integers(found: np.ndarray[Any, Any], dtype: str) -> None:
    low, high = integer_range(dtype)
    if found.dtype.kind in _EXACT_KINDS:
        wrong = [each for each in (found.min(), found.max()) if not low <= int(each) <= high]
    else:
        whole = np.isfinite(found) & (np.floor(found) == found)
        inside = (found >= float(low)) & (found < float(high + 1))
        wrong = list(found[~(whole & inside)][:1])
    if wrong:
        raise ValueError(_unfit(wrong[0].item(), dtype))


def _unfit(value: float, dtype: str) -> str:
    low, high = integer_range(dtype)
    return f"{value} does not fit {dtype}, whose values are the integers from {low} to {high}"
