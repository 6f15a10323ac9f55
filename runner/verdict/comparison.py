"""When two values are equal: shapes strictly, dtypes where stated, numbers within their error."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runner.expressions.values import Undefined
from runner.model.trace import Event, Trace, Value
from runner.operations.base import dtype_name
from runner.operations.checks import TOLERANCES, is_inexact, wide
from runner.verdict.finding import Difference

# -------------------------------------------------------------------------------------------------
# Values as numbers: literals become arrays, and arrays are compared without rounding.

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


# -------------------------------------------------------------------------------------------------
# When two values are equal: shapes strictly, dtypes where stated, numbers within their error.
#
# The tolerances are those of `torch.testing.assert_close` for each dtype, but one unit in the last
# place, relatively, for the 16-bit floats, whose defaults there hide a wrong rank's contribution.
# Integers, booleans and float8 are exact. NaN equals NaN. An undefined value equals nothing; who
# calls decides before whether it may be asked.

EXACT = (0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a value must be: `value` is an array, a number, nested lists or plain objects.

    Without `has_value` only `dtype` and `shape` are asked. `rtol` and `atol` replace the
    dtype's defaults; either alone leaves the other at its default. `unchanged`: it is what the
    rank held before, in the same trace. `strict`: the dtypes of wanted arrays count as stated.
    """

    value: Value = None
    has_value: bool = True
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    rtol: float | None = None
    atol: float | None = None
    unchanged: bool = False
    strict: bool = False


def is_tensors(value: Value) -> bool:
    """Return whether a value is a list of tensors (or of lists of them)."""
    return isinstance(value, list | tuple) and any(is_array(x) or is_tensors(x) for x in value)


def same(left: Value, right: Value) -> bool:
    """Return whether two values are equal to the bit: the quick answer for most."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return (
            left.dtype == right.dtype
            and left.shape == right.shape
            and left.tobytes() == right.tobytes()
        )
    return False


def differences(rank: int, wanted: Wanted, got: Value, slack: Value = None) -> list[Difference]:
    """Return how `got` differs from what is wanted: one difference for each tensor that does."""
    return _Comparison(rank, wanted, ()).of(wanted.value, got, slack)


class _Comparison:
    """One comparison, on one rank; `item` is the position inside a list of tensors."""

    def __init__(self, rank: int, wanted: Wanted, item: tuple[int, ...]) -> None:
        self.rank = rank
        self.wanted = wanted
        self.item = item

    def of(self, expected: Value, got: Value, slack: Value) -> list[Difference]:
        if isinstance(got, Undefined):
            return [self.difference("undefined_read", f"is undefined after {got.cause}", None, got)]
        if isinstance(expected, Undefined):
            text = f"is compared with a value that is undefined after {expected.cause}"
            return [self.difference("undefined_read", text, expected, got)]
        if is_tensors(got):
            return self.items(expected, list(got), slack)
        if isinstance(got, bool | int | float | complex):
            got = np.asarray(got)
        if is_array(got):
            return self.tensor(expected, np.asarray(got), slack)
        return self.plain(expected, got)

    def items(self, expected: Value, got: list[Any], slack: Value) -> list[Difference]:
        if self.wanted.has_value:
            count = _length(expected)
            if count != len(got):
                found = "no list" if count is None else f"{count}"
                text = f"is a list of {len(got)} tensors, the expectation has {found}"
                return [self.difference("shape_differs", text, expected, got)]
        found_differences = []
        for position, value in enumerate(got):
            inner = _Comparison(self.rank, self.wanted, (*self.item, position))
            part = expected[position] if self.wanted.has_value else None
            allowed = slack[position] if isinstance(slack, list | tuple) else None
            found_differences += inner.of(part, value, allowed)
        return found_differences

    def tensor(self, expected: Value, got: NDArray[Any], slack: Value) -> list[Difference]:
        name, dtype = str(got.dtype), self.wanted.dtype
        if self.wanted.strict and is_array(expected):
            dtype = str(expected.dtype)
        if dtype is not None and name != dtype:
            text = f"has dtype {name}, wanted {dtype}"
            return [self.difference("dtype_differs", text, dtype, name)]
        shape = list(got.shape)
        if self.wanted.shape is not None and got.shape != self.wanted.shape:
            text = f"has shape {shape}, wanted {list(self.wanted.shape)}"
            return [self.difference("shape_differs", text, self.wanted.shape, got.shape)]
        if not self.wanted.has_value:
            return []
        numbers = as_numbers(expected)
        if numbers is None:
            text = f"is a tensor of shape {shape}, wanted {_shown(expected)}"
            return [self.difference("shape_differs", text, expected, got)]
        if self.wanted.shape is not None and numbers.size == 1:
            numbers = np.broadcast_to(numbers.reshape(()), got.shape)
        if numbers.shape != got.shape:
            return [self.difference("shape_differs", _shapes(numbers, got), numbers, got)]
        return self.numbers(numbers, got, slack, typed=isinstance(expected, np.ndarray))

    def numbers(
        self, numbers: NDArray[Any], got: NDArray[Any], slack: Value, *, typed: bool
    ) -> list[Difference]:
        with np.errstate(all="ignore"):
            if is_inexact(got):
                wrong, errors, sizes = self.inexact(numbers, got, slack, typed=typed)
            else:
                wrong, errors, sizes = exactly(numbers, got)
        if not wrong.any():
            return []
        count = int(wrong.sum())
        text = f"differs in {count} of {wrong.size} elements" if wrong.size > 1 else "differs"
        return [
            Difference(
                rank=self.rank,
                code="value_differs",
                message=text,
                expected=numbers,
                got=got,
                wrong=wrong,
                max_abs=largest(errors, wrong),
                max_rel=largest(ratio(errors, sizes), wrong),
                item=self.item,
            )
        ]

    def inexact(
        self, numbers: NDArray[Any], got: NDArray[Any], slack: Value, *, typed: bool
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        rtol, atol = TOLERANCES.get(dtype_name(got.dtype), EXACT)
        if typed and is_inexact(numbers):
            other = TOLERANCES.get(dtype_name(numbers.dtype), EXACT)
            rtol, atol = max(rtol, other[0]), max(atol, other[1])
        rtol = rtol if self.wanted.rtol is None else self.wanted.rtol
        atol = atol if self.wanted.atol is None else self.wanted.atol
        expected = numbers
        if not (numbers.dtype.kind == "c" and got.dtype.kind != "c"):
            expected = numbers.astype(got.dtype)
        left, right = wide(expected), wide(got)
        errors = np.abs(left - right)
        allowed = atol + rtol * np.abs(left)
        if slack is not None and self.wanted.rtol is None and self.wanted.atol is None:
            allowed = allowed + np.asarray(slack, dtype=np.float64)
        finite = np.isfinite(left) & np.isfinite(right)
        equal = (
            (left == right) | (np.isnan(left) & np.isnan(right)) | (finite & (errors <= allowed))
        )
        return ~equal, errors, np.abs(left)

    def plain(self, expected: Value, got: Value) -> list[Difference]:
        if not self.wanted.has_value:
            text = f"is {_shown(got)}, no tensor"
            return [self.difference("value_missing", text, None, got)]
        if equal_objects(expected, got):
            return []
        if got is None:
            text = "does not exist on this rank"
            return [self.difference("value_missing", text, expected, got)]
        text = f"is {_shown(got)}, wanted {_shown(expected)}"
        return [self.difference("value_differs", text, expected, got)]

    def difference(self, code: str, message: str, expected: Value, got: Value) -> Difference:
        return Difference(
            rank=self.rank,
            code=code,
            message=message,
            expected=expected,
            got=got,
            item=self.item,
        )


def equal_objects(expected: Value, got: Value) -> bool:
    """Return whether two plain objects are equal: types of scalars count, list and tuple do not."""
    if isinstance(expected, range):
        expected = list(expected)
    if isinstance(expected, list | tuple) and isinstance(got, list | tuple | range):
        return len(expected) == len(got) and all(
            equal_objects(left, right) for left, right in zip(expected, got, strict=True)
        )
    if isinstance(expected, dict) and isinstance(got, dict):
        return expected.keys() == got.keys() and all(
            equal_objects(expected[key], got[key]) for key in expected
        )
    if is_array(expected) or is_array(got):
        left, right = as_numbers(expected), as_numbers(got)
        return (
            left is not None and right is not None and not differences(0, Wanted(value=left), right)
        )
    if isinstance(expected, bool) != isinstance(got, bool):
        return False
    return bool(expected == got)


def _length(value: Value) -> int | None:
    if isinstance(value, list | tuple | range):
        return len(value)
    return int(value.shape[0]) if is_array(value) and np.ndim(value) else None


def _shapes(numbers: NDArray[Any], got: NDArray[Any]) -> str:
    text = f"has shape {list(got.shape)}, the expectation has {list(numbers.shape)}"
    if numbers.shape == ():
        fill = "[" + ", ".join(map(str, got.shape)) + "]" if got.ndim != 1 else str(got.shape[0])
        return f"{text}: a number is a scalar; write full({fill}, {numbers.item()})"
    if got.shape == ():
        return f"{text}: the tensor is a scalar; write the number without brackets"
    return text


def _shown(value: Value) -> str:
    if is_array(value):
        return f"a tensor of shape {list(np.shape(value))}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# -------------------------------------------------------------------------------------------------
# A value that is further off than a dtype rounds, because reductions before it were off.


def differences_beyond(
    predicted: Trace,
    place: tuple[int, Event | None, str],
    wanted: Wanted,
    got: Value,
    slack: Value,
) -> list[Difference]:
    """Compare a value of a run; `place` is the rank, the step (None: the end), and the name.

    Only where it is further off than its own step allows is it asked how far what came before may
    move it.
    """
    rank, event, name = place
    off = differences(rank, wanted, got, slack)
    if not off or predicted.drift is None or any(each.code != "value_differs" for each in off):
        return off
    at = None if event is None else (event.index, event.iteration)
    drift = predicted.drift(rank, at, name)
    return off if drift is None else differences(rank, wanted, got, _allowed(slack, drift))


def _allowed(slack: Value, drift: Value) -> Value:
    """Return how far a value may be off; the drift has the slack of its own step in it, twice."""
    if isinstance(drift, list):
        own = slack if isinstance(slack, list) else [None] * len(drift)
        return [_allowed(one, two) for one, two in zip(own, drift, strict=True)]
    return drift if slack is None else np.maximum(slack, drift - np.asarray(slack))
