"""When two values are equal: shapes strictly, dtypes where stated, numbers within their error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from torch_scenarios.expressions.values import Undefined
from torch_scenarios.model.tolerance import (
    bound_error,
    exactly,
    inexactly,
    is_array,
    is_tensors,
    largest,
    ratio,
    read_numbers,
)
from torch_scenarios.model.trace import Event, Trace, Value
from torch_scenarios.operations.checks import is_inexact
from torch_scenarios.verdict.finding import Difference

# When two values are equal: shapes strictly, dtypes where stated, numbers within their error.
#
# How near numbers must be says :mod:`torch_scenarios.model.tolerance`. An undefined value equals
# nothing; the caller decides before whether it may be asked.


class WantedValue(Struct, frozen=True, kw_only=True):
    """What a value must be: `value` is an array, a number, nested lists or plain objects.

    Without `has_value` only `dtype` and `shape` are asked. `rtol` and `atol` replace the dtype's
    defaults; either alone leaves the other at its default. `unchanged`: it is what the rank held
    before, in the same trace. `strict`: the dtypes of wanted arrays count as stated.

    >>> three = WantedValue(value=[3.0, 3.0])
    >>> differences(0, three, np.array([3.0, 3.0], np.float32))
    []
    >>> [each.code for each in differences(0, three, np.array([3.0, 4.0], np.float32))]
    ['value_differs']
    >>> [each.code for each in differences(0, three, np.array([3.0], np.float32))]
    ['shape_differs']

    A list that an author writes has no dtype, so that it equals a tensor of any. A shape is always
    meant: `[3.0]` is not the number 3.
    """

    value: Value = None
    has_value: bool = True
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    rtol: float | None = None
    atol: float | None = None
    unchanged: bool = False
    strict: bool = False
    #: whether the rest is what the rank itself holds of a distributed tensor
    local: bool = False
    #: how a distributed tensor lies; None: that is not asked
    placements: tuple[str, ...] | None = None
    #: and how it does lie, as far as this trace says
    lies: tuple[str, ...] | None = None
    #: the shape of the whole of which a rank holds a part, and what takes its part of a whole
    whole: tuple[int, ...] | None = None
    part: Callable[[NDArray[Any]], NDArray[Any]] | None = None


def differences(
    rank: int, wanted: WantedValue, got: Value, slack: Value = None
) -> list[Difference]:
    """Return how `got` differs from what is wanted: one difference for each tensor that does.

    wanted   what must be there, with its tolerances
    got      an array, a list of arrays, a number or a plain object
    slack    how far each element may be off besides, as a reduction's order moves it; same shape
    """
    if wanted.placements is not None and got is not None and wanted.lies != wanted.placements:
        lies = wanted.lies
        how = f"lies as [{', '.join(lies)}]" if lies else "is a plain tensor"
        text = f"{how}, wanted [{', '.join(wanted.placements)}]"
        comparison = _Comparison(rank, wanted, ())
        expected, found = list(wanted.placements), list(lies or ())
        return [comparison.difference("placements_differ", text, expected, found)]
    return _Comparison(rank, wanted, ()).of(wanted.value, got, slack)


class _Comparison:
    """One comparison, on one rank; `item` is the position inside a list of tensors."""

    def __init__(self, rank: int, wanted: WantedValue, item: tuple[int, ...]) -> None:
        self.rank = rank
        self.wanted = wanted
        self.item = item

    def of(self, expected: Value, got: Value, slack: Value) -> list[Difference]:
        """Compare two values of any kind; an undefined one equals nothing."""
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
        """Compare lists of tensors one by one: `gather_list` has one for each member."""
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
        """Compare a tensor: dtype, shape, then numbers. The first that differs is the difference.

        Of a distributed tensor `wanted.whole` is the shape of the whole, and `wanted.part` takes
        this rank's part of what is wanted.
        """
        dtype = self.wanted.dtype
        if self.wanted.strict and is_array(expected):
            dtype = str(expected.dtype)
        if dtype is not None and (name := str(got.dtype)) != dtype:
            text = f"has dtype {name}, wanted {dtype}"
            return [self.difference("dtype_differs", text, dtype, name)]
        held = self.wanted.whole or got.shape
        shape = list(held)
        if self.wanted.shape is not None and held != self.wanted.shape:
            text = f"has shape {shape}, wanted {list(self.wanted.shape)}"
            return [self.difference("shape_differs", text, self.wanted.shape, held)]
        if not self.wanted.has_value:
            return []
        numbers = read_numbers(expected)
        if numbers is None:
            text = f"is a tensor of shape {shape}, wanted {_show(expected)}"
            return [self.difference("shape_differs", text, expected, got)]
        if self.wanted.part is not None:
            if numbers.shape != held:
                text = f"has shape {shape}, the expectation has {list(numbers.shape)}"
                return [self.difference("shape_differs", text, numbers, got)]
            numbers = self.wanted.part(numbers)
        elif self.wanted.shape is not None and numbers.size == 1:
            numbers = np.broadcast_to(numbers.reshape(()), got.shape)
        if numbers.shape != got.shape:
            return [self.difference("shape_differs", _shapes(numbers, got), numbers, got)]
        return self.numbers(numbers, got, slack, typed=isinstance(expected, np.ndarray))

    def numbers(
        self, numbers: NDArray[Any], got: NDArray[Any], slack: Value, *, typed: bool
    ) -> list[Difference]:
        """Compare elements, within the tolerance of the dtype; integers and booleans exactly."""
        if _equal(numbers, got):
            return []
        with np.errstate(all="ignore"):
            if is_inexact(got):
                wrong, errors, sizes = inexactly(
                    numbers, got, slack, (self.wanted.rtol, self.wanted.atol), typed=typed
                )
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

    def plain(self, expected: Value, got: Value) -> list[Difference]:
        """Compare plain objects, as `broadcast_object_list` moves, or what is not there."""
        if not self.wanted.has_value:
            text = f"is {_show(got)}, no tensor"
            return [self.difference("value_missing", text, None, got)]
        if equal_objects(expected, got):
            return []
        if got is None:
            text = "does not exist on this rank"
            return [self.difference("value_missing", text, expected, got)]
        text = f"is {_show(got)}, wanted {_show(expected)}"
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


def _equal(numbers: NDArray[Any], got: NDArray[Any]) -> bool:
    """Return whether all elements are plainly equal: no dtype and no tolerance need be asked."""
    own = numbers.dtype.kind in _OWN and got.dtype.kind in _OWN
    return own and np.count_nonzero(numbers == got) == got.size


#: kinds of the dtypes that are NumPy's own
_OWN = frozenset("biufc")


def equal_objects(expected: Value, got: Value) -> bool:
    """Return whether two plain objects are equal: types of scalars count, list and tuple do not.

    >>> equal_objects([1, 2], (1, 2)), equal_objects(True, 1)
    (True, False)

    A scenario has no tuples, and pickle keeps them: a tuple that was sent equals the list that is
    stated.
    """
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
        left, right = read_numbers(expected), read_numbers(got)
        return (
            left is not None
            and right is not None
            and not differences(0, WantedValue(value=left), right)
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


def _show(value: Value) -> str:
    if is_array(value):
        return f"a tensor of shape {list(np.shape(value))}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# A value that is further off than a dtype rounds, because reductions before it were off.


def differences_beyond(
    predicted: Trace,
    place: tuple[int, Event | None, str],
    wanted: WantedValue,
    got: Value,
    slack: Value,
) -> list[Difference]:
    """Compare a value of a run; `place` is the rank, the step (None: the end), and the name.

    Only where it is further off than its own step allows is it asked how far what came before may
    move it. A sum of bfloat16 may be off by a rounding; after ten steps of training that each use
    it, by more than any one step allows (`Trace.drift`).
    """
    rank, event, name = place
    off = differences(rank, wanted, got, slack)
    if not off or predicted.drift is None or any(each.code != "value_differs" for each in off):
        return off
    at = None if event is None else (event.index, event.iteration)
    drift = predicted.drift(rank, at, name)
    return off if drift is None else differences(rank, wanted, got, bound_error(slack, drift))
