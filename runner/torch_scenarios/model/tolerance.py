"""What is close enough: the one page on it.

Two values are equal where they differ by no more than three things together allow:

1. **the tolerance** of the dtype (`TOLERANCES`), or what the author states in its place;
2. **the error bound** of the reduction that made the value (:func:`slack_of`): a backend may add
   its terms in any order, and in the dtype;
3. **the propagated error**: what the bounds of earlier reductions have become. That is tried out,
   not derived: the program runs again with every such result moved by its bound (:func:`move`),
   and a value may be off by twice as far as it moved most (:func:`propagate_error`).

Integers, booleans and float8 are exact. NaN equals NaN. Which values are compared, and in which
words it is said that they differ, is for :mod:`torch_scenarios.verdict`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any
from zlib import crc32

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from torch_scenarios.model.trace import Value
from torch_scenarios.operations.base import Collective, Entry, dtype_name
from torch_scenarios.operations.checks import epsilon, is_inexact, wide

# Values as numbers: literals become arrays, and nothing is rounded before it is compared.


#: the largest integer that a double holds
LARGEST = int(sys.float_info.max)


def is_array(value: Value) -> bool:
    """Return whether a value is one tensor, or one element of one."""
    return isinstance(value, np.ndarray | np.generic)


def read_numbers(value: Value) -> NDArray[Any] | None:
    """Return a number, nested lists of numbers or an array as an array; None for anything else.

    Integers beyond 64 bits stay Python's own, so that nothing is rounded before it is compared.

    >>> read_numbers([1, 2]), read_numbers("1") is None, read_numbers([[1], [2, 3]]) is None
    (array([1, 2]), True, True)
    >>> read_numbers(2**70).dtype
    dtype('O')
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


def is_tensors(value: Value) -> bool:
    """Return whether a value is a list of tensors (or of lists of them)."""
    return isinstance(value, list | tuple) and any(is_array(x) or is_tensors(x) for x in value)


def are_identical(left: Value, right: Value) -> bool:
    """Return whether two values are equal to the bit: the quick answer for most."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return (
            left.dtype == right.dtype
            and left.shape == right.shape
            and left.tobytes() == right.tobytes()
        )
    return False


# The tolerance of a dtype.
#
# The tolerances are those of `torch.testing.assert_close` for each dtype, but one unit in the last
# place, relatively, for the 16-bit floats, whose defaults there hide a wrong rank's contribution.


#: dtype -> (rtol, atol) within which two values are equal; other dtypes are exact
TOLERANCES = {
    "float16": (2.0**-10, 1e-5),
    "bfloat16": (2.0**-7, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}


EXACT = (0.0, 0.0)


def inexactly(
    numbers: NDArray[Any],
    got: NDArray[Any],
    slack: Value,
    stated: tuple[float | None, float | None],
    *,
    typed: bool,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Compare within the tolerance: return what is wrong, the errors, and the wanted sizes.

    `stated` are the author's rtol and atol; with neither, a result may also be off by `slack`.
    `typed`: the dtype of `numbers` is meant as well, so that the wider tolerance of both holds.
    """
    rtol, atol = TOLERANCES.get(dtype_name(got.dtype), EXACT)
    if typed and is_inexact(numbers):
        other = TOLERANCES.get(dtype_name(numbers.dtype), EXACT)
        rtol, atol = max(rtol, other[0]), max(atol, other[1])
    rtol = rtol if stated[0] is None else stated[0]
    atol = atol if stated[1] is None else stated[1]
    expected = numbers
    if not (numbers.dtype.kind == "c" and got.dtype.kind != "c"):
        expected = numbers.astype(got.dtype)
    left, right = wide(expected), wide(got)
    errors = np.abs(left - right)
    allowed = atol + rtol * np.abs(left)
    if slack is not None and stated == (None, None):
        allowed = allowed + np.asarray(slack, dtype=np.float64)
    finite = np.isfinite(left) & np.isfinite(right)
    equal = (left == right) | (np.isnan(left) & np.isnan(right)) | (finite & (errors <= allowed))
    return ~equal, errors, np.abs(left)


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


# How far the result of a reduction may be off, because the order of its terms is open.


#: reduce ops whose floating-point result depends on the order
ORDER_MATTERS = frozenset({"sum", "avg", "product"})


# Why a result has a bound of its own and not one relative to itself.
#
#     rank 0   1e8     rank 1   1     rank 2   -1e8         float32, op sum
#
# In the order of the ranks the sum is 0: 1e8 + 1 is 1e8 in float32. In another it is 1. Both are
# right, and no relative tolerance of 0 allows for 1. What bounds the error is the sum of the
# absolute values, 2e8 here, times the roundings that may be made on the way. Integers that fit into
# the mantissa add up exactly in each order, and have no bound: a sum that is off by 1 there is
# wrong.
def slack_of(operation: Collective, entries: list[Entry]) -> list[dict[str, Any]]:
    """Return how far each result may be off because the order of its reduction is open.

    The bound for n terms in any order is (n - 1) roundings of the sum of their absolute values
    (Higham, Accuracy and Stability of Numerical Algorithms, 4.2); that sum is the operation's own
    result on the absolute values. Empty where every order gives the same.
    """
    op = operation.reduction(entries[0].arguments)
    if op is None or (isinstance(op, str) and op not in ORDER_MATTERS) or len(entries) < 2:
        return []
    exact = [_integral(entry) for entry in entries]
    dtypes = [each.dtype for entry in entries for each in _arrays(entry) if is_inexact(each)]
    if not dtypes:
        return []
    sizes = operation.reference(
        [
            replace(
                entry, arguments={name: _size(value) for name, value in entry.arguments.items()}
            )
            for entry in entries
        ]
    )
    eps, count, whole = epsilon(dtypes[0]), len(entries), all(exact) and op != "avg"
    #: by the identity of a result: all members of an `all_reduce` have the same one
    known: dict[int, Any] = {}
    for value in (value for result in sizes for value in result.values()):
        if id(value) not in known:
            bound = _bound(value, eps, count)
            known[id(value)] = _unless_exact(bound, count) if whole else bound
    return [{name: known[id(value)] for name, value in result.items()} for result in sizes]


def common_slack(operation: Collective, arguments: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return what :func:`slack_of` gives each of `count` members whose results are the same.

    The tensors among `arguments` are those of all members, stacked `[n, *shape]`.
    """
    op = operation.reduction(arguments)
    if op is None or (isinstance(op, str) and op not in ORDER_MATTERS) or count < 2:
        return {}
    stacks = [each for each in arguments.values() if isinstance(each, np.ndarray)]
    inexact = [each for each in stacks if is_inexact(each)]
    sizes = {name: _size(value) for name, value in arguments.items()}
    result = operation.common(sizes) if inexact else None
    if result is None:
        return {}
    eps = epsilon(inexact[0].dtype)
    bounds = {name: _bound(value, eps, count) for name, value in result.items()}
    if op != "avg" and all(_is_whole(each) for each in inexact):
        return {name: _unless_exact(value, count) for name, value in bounds.items()}
    return bounds


def _arrays(entry: Entry) -> list[Any]:
    found: list[Any] = []
    for value in entry.arguments.values():
        found += [value] if isinstance(value, np.ndarray) else []
        found += [v for v in value if isinstance(v, np.ndarray)] if isinstance(value, list) else []
    return found


def _integral(entry: Entry) -> bool:
    return all(_is_whole(each) for each in _arrays(entry) if is_inexact(each))


def _is_whole(array: NDArray[Any]) -> bool:
    """Whether every element is an integer."""
    wider = wide(array)
    with np.errstate(all="ignore"):
        return bool((wider == np.rint(wider.real)).all())


def _size(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return np.abs(wide(value)) if is_inexact(value) else value
    if isinstance(value, list):
        return [_size(item) for item in value]
    return value


def _bound(value: Any, eps: float, count: int) -> Any:
    if isinstance(value, list):
        return [_bound(item, eps, count) for item in value]
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size:
        bound = value * (eps * count)
        finite = np.isfinite(bound)
        return bound if finite.all() else np.where(finite, bound, 0.0)
    return None


def _unless_exact(value: Any, count: int) -> Any:
    """Integers whose sum of sizes the dtype still represents add up exactly in any order."""
    if isinstance(value, list):
        return [_unless_exact(item, count) for item in value]
    if value is None:
        return None
    return np.where(value <= count, 0.0, value)


# What earlier errors have become: every reduction moved by its bound, one way and another.


def move(value: Any, slack: Any, way: int, link: str) -> Any:
    """Return a result that is off by its slack; `link` names the match that it is from.

    >>> result, bound = np.array([1.0, 2.0]), np.array([0.25, 0.5])
    >>> move(result, bound, 0, "world:0"), move(result, bound, 1, "world:0")
    (array([1.25, 2.5 ]), array([0.75, 1.5 ]))
    >>> move(result, bound, 2, "world:0")
    array([1.25, 1.5 ])

    The ways above 2 choose at random, by the number of the way and the link: each run of a program
    moves a result alike, and another result in another way.
    """
    if isinstance(value, list) and isinstance(slack, list):
        pairs = zip(value, slack, strict=True)
        return [move(each, bound, way, f"{link}.{at}") for at, (each, bound) in enumerate(pairs)]
    if not isinstance(value, np.ndarray) or slack is None or not is_inexact(value):
        return value
    signs = _signs(value.size, way, link).reshape(value.shape)
    with np.errstate(all="ignore"):
        return (wide(value) + signs * np.asarray(slack)).astype(value.dtype)


def _signs(count: int, way: int, link: str) -> NDArray[np.floating[Any]]:
    if way < 2:
        return np.full(count, 1.0 - 2.0 * way)
    if way == 2:
        return np.where(np.arange(count) % 2, -1.0, 1.0)
    return np.random.default_rng([way, crc32(link.encode())]).choice([-1.0, 1.0], count)


def propagate_error(runs: list[Any]) -> Any:
    """Return how far each element may be off, of what several runs hold; the first moved nothing.

    None where nothing is known to move it.

    >>> propagate_error([np.array([1.0, 2.0]), np.array([1.25, 2.0]), np.array([0.5, 2.0])])
    array([1., 0.])

    The farthest run is off by 0.5, and a value may be off by twice as far.
    """
    if not runs or any(each is None for each in runs):
        return None
    apart = [_measure_distance(runs[0], each) for each in runs[1:]]
    return None if any(each is None for each in apart) else _find_most(apart)


def _measure_distance(one: Any, two: Any) -> Any:
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        parts = [_measure_distance(mine, other) for mine, other in zip(one, two, strict=True)]
        return None if any(part is None for part in parts) else parts
    arrays = isinstance(one, np.ndarray) and isinstance(two, np.ndarray)
    if not arrays or one.shape != two.shape or one.dtype != two.dtype or not is_inexact(one):
        return None
    with np.errstate(all="ignore"):
        return np.nan_to_num(np.abs(wide(one) - wide(two)), nan=0.0, posinf=0.0)


def _find_most(apart: list[Any]) -> Any:
    if isinstance(apart[0], list):
        return [_find_most(list(parts)) for parts in zip(*apart, strict=True)]
    return 2 * np.max(np.stack(apart), axis=0)


def bound_error(slack: Value, drift: Value) -> Value:
    """Return how far a value may be off; the drift has the slack of its step in it, twice."""
    if isinstance(drift, list):
        own = slack if isinstance(slack, list) else [None] * len(drift)
        return [bound_error(one, two) for one, two in zip(own, drift, strict=True)]
    return drift if slack is None else np.maximum(slack, drift - np.asarray(slack))
