"""Which dtype an operation gives, by the names of dtypes alone: one rule for both executors.

The Python array API standard's rules; where it leaves mixed kinds open, torch's: the kind decides
(`bool < int < float < complex`), and an integer tensor with a float is float32, torch's default.
A Python number never widens a tensor of its own kind, or of a higher one.
"""

from __future__ import annotations

import re
from functools import cache

DEFAULT_FLOAT = "float32"

#: floats with fewer bits than float32: computed in float32, then rounded
NARROW = frozenset(
    {
        "float16",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
    }
)

_KINDS = ("bool", "int", "float", "complex")


@cache
def kind(dtype: str) -> str:
    """Return `bool`, `int`, `float` or `complex`; unsigned integers are `int`."""
    if dtype == "bool":
        return "bool"
    if dtype.startswith("complex"):
        return "complex"
    return "int" if dtype.startswith(("int", "uint")) else "float"


@cache
def bits(dtype: str) -> int:
    """Return the bits of one element."""
    found = re.search(r"\d+", dtype)
    return int(found.group()) if found else 8


@cache
def integer_range(dtype: str) -> tuple[int, int]:
    """Return the least and the greatest value of an integer dtype, or of bool."""
    if dtype == "bool":
        return 0, 1
    if dtype.startswith("uint"):
        return 0, 2 ** bits(dtype) - 1
    return -(2 ** (bits(dtype) - 1)), 2 ** (bits(dtype) - 1) - 1


def is_exact(dtype: str) -> bool:
    """Return whether the dtype is an integer or bool."""
    return kind(dtype) in {"bool", "int"}


@cache
def promoted(first: str, second: str) -> str:
    """Return the dtype in which two tensors meet; TypeError where there is none."""
    if first == second:
        return first
    low, high = sorted((first, second), key=lambda each: _KINDS.index(kind(each)))
    if kind(low) != kind(high):
        if kind(high) == "complex" and low == "float64":
            return "complex128"
        return high
    return _of_one_kind(low, high)


def _of_one_kind(first: str, second: str) -> str:
    low, high = sorted((first, second), key=bits)
    if kind(high) != "int":
        return DEFAULT_FLOAT if bits(low) == bits(high) else high
    if low.startswith("u") == high.startswith("u") or (bits(low) < bits(high) and low[0] == "u"):
        return high
    wider = 2 * bits(high)
    if wider > 64:  # noqa: PLR2004 -- the widest integer
        message = f"{first} and {second} have no common dtype; use astype on one of them"
        raise TypeError(message)
    return f"int{wider}"


@cache
def promoted_by_number(dtype: str, number: type) -> str:
    """Return the dtype of a tensor with a Python number of that type."""
    kinds = _KINDS.index(kind(dtype)), _KINDS.index(number.__name__)
    if kinds[1] <= kinds[0]:
        return dtype
    if number is int:
        return "int64"
    if number is float:
        return DEFAULT_FLOAT
    return "complex128" if dtype == "float64" else "complex64"


def widest(dtype: str) -> str:
    """Return the widest dtype of the same kind, in which a rounding function is computed."""
    return {"float": "float64", "complex": "complex128"}.get(kind(dtype), dtype)
