"""Functions that make tensors: float32 unless `dtype` says otherwise.

All are made by NumPy and handed to the library, so that both executors hold the same bits.
"""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.language.literals import fitted
from runner.language.promotion import DEFAULT_FLOAT, is_exact, kind
from runner.problems import nearest
from runner.vocabulary import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.language.arithmetic import Value
    from runner.language.operators import Operators


class Constructors:
    """The functions that make tensors, for one library."""

    def __init__(self, operators: Operators) -> None:
        """Share the operators' library and budget."""
        self._library = operators.library
        self._budget = operators.budget

    def table(self) -> dict[str, Callable[..., Any]]:
        """Return the functions by name."""
        return {
            "full": self.full,
            "zeros": self.zeros,
            "ones": self.ones,
            "arange": self.arange,
            "linspace": self.linspace,
            "eye": self.eye,
            "random": self.random,
        }

    def _made(self, array: np.ndarray[Any, Any], dtype: object) -> Value:
        return self._library.from_numpy(fitted(array, dtype_name(dtype)))

    def full(self, shape: Value, fill_value: Value, dtype: Value = None) -> Value:
        """Every element `fill_value`: a number, or a tensor of one element.

        A complex number makes a complex tensor, as in the array API.
        """
        sizes = self._sizes(shape)
        if fill_value is None:
            message = "the fill value has no value on this rank"
            raise TypeError(message)
        if self._library.is_array(fill_value):
            fill_value = number_in(fill_value)
        filling = np.asarray(fill_value)
        if dtype is None:
            dtype = "complex64" if filling.dtype.kind == "c" else DEFAULT_FLOAT
        one = fitted(filling, dtype_name(dtype))
        if one.ndim:
            message = "the fill value is one number"
            raise ValueError(message)
        return self._library.from_numpy(np.full(sizes, one))

    def zeros(self, shape: Value, dtype: Value = DEFAULT_FLOAT) -> Value:
        """Every element 0."""
        return self.full(shape, 0, dtype)

    def ones(self, shape: Value, dtype: Value = DEFAULT_FLOAT) -> Value:
        """Every element 1."""
        return self.full(shape, 1, dtype)

    def arange(
        self,
        start: Value,
        stop: Value = None,
        step: Value = 1,
        dtype: Value = DEFAULT_FLOAT,
    ) -> Value:
        """From `start` (0 where only a stop is given) up to, without, `stop`."""
        if stop is None:
            start, stop = 0, start
        first, last, by = (real_in(each) for each in (start, stop, step))
        if by == 0:
            message = "the step is zero"
            raise ValueError(message)
        self._budget.tensor(max(ceil((last - first) / by), 0))
        whole = all(isinstance(each, int) for each in (first, last, by))
        wide = np.int64 if whole and is_exact(dtype_name(dtype)) else np.float64
        return self._made(np.arange(first, last, by, dtype=wide), dtype)

    def linspace(
        self,
        start: Value,
        stop: Value,
        num: Value,
        dtype: Value = DEFAULT_FLOAT,
        endpoint: Value = True,  # noqa: FBT002 -- the standard's own argument
    ) -> Value:
        """`num` numbers at even distances from `start` to `stop`, which is the last of them."""
        (count,) = self._sizes([num])
        points = np.linspace(real_in(start), real_in(stop), count, endpoint=bool(endpoint))
        return self._made(points, dtype)

    def eye(
        self,
        n_rows: Value,
        n_cols: Value = None,
        k: Value = 0,
        dtype: Value = DEFAULT_FLOAT,
    ) -> Value:
        """Ones on the diagonal, `k` to the right of the main one."""
        rows, columns = self._sizes([n_rows, n_rows if n_cols is None else n_cols])
        return self._made(np.eye(rows, columns, k=integer(k, "k")), dtype)

    def random(self, shape: Value, seed: Value, dtype: Value = DEFAULT_FLOAT) -> Value:
        """Uniform float32 numbers in [0, 1) of NumPy's PCG64; the seed decides them."""
        sizes = self._sizes(shape)
        seeds = seed if isinstance(seed, list) else [seed]
        if kind(dtype_name(dtype)) not in {"float", "complex"}:
            message = "random numbers in [0, 1) are floats"
            raise ValueError(message)
        numbers = [integer(each, "the seed") for each in seeds]
        if min(numbers, default=-1) < 0:
            message = "the seed is an integer that is not negative"
            raise ValueError(message)
        generator = np.random.default_rng(numbers if isinstance(seed, list) else numbers[0])
        return self._made(generator.random(sizes, dtype=np.float32), dtype)

    def _sizes(self, shape: Value) -> tuple[int, ...]:
        found = sizes(shape)
        self._budget.tensor(prod(found))
        return found


def sizes(shape: Value) -> tuple[int, ...]:
    """Return a shape as sizes: an integer is one dimension."""
    parts = shape if isinstance(shape, list | tuple | range) else [shape]
    found = tuple(integer(each, "a size") for each in parts)
    if any(each < 0 for each in found):
        message = f"a size is negative: {list(found)}"
        raise ValueError(message)
    return found


def integer(value: Value, what: str) -> int:
    """Return an integer, or a tensor's only integer; TypeError names `what` it is for."""
    if hasattr(value, "item"):
        value = number_in(value)
    if value is None:
        message = f"{what} has no value on this rank"
        raise TypeError(message)
    if not isinstance(value, int) or isinstance(value, bool):
        hint = "; `//` divides integers" if isinstance(value, float) else ""
        message = f"{what} is an integer, not {value!r}{hint}"
        raise TypeError(message)
    return value


def axes(axis: Value) -> int | tuple[int, ...] | None:
    """Return an axis, or several, as the libraries take them."""
    if axis is None:
        return None
    if isinstance(axis, list | tuple | range):
        return tuple(integer(each, "an axis") for each in axis)
    return integer(axis, "an axis")


def number_in(value: Value) -> Value:
    """Return a number, or the only element of a tensor as a Python number."""
    if hasattr(value, "item"):
        if prod(value.shape) != 1:
            message = f"one number is wanted, not a tensor of shape {list(value.shape)}"
            raise ValueError(message)
        return value.item()
    if not isinstance(value, int | float | complex):
        message = "a number is wanted, not " + ("None" if value is None else type(value).__name__)
        raise TypeError(message)
    return value


def real_in(value: Value) -> Value:
    """Return an int or a float, or the only element of a tensor as one."""
    found = number_in(value)
    if isinstance(found, complex):
        message = "a real number is wanted, not a complex one"
        raise TypeError(message)
    return found


def dtype_name(dtype: object) -> str:
    """Return the name of a dtype; TypeError, with the nearest one, where there is none."""
    if isinstance(dtype, str) and dtype in DTYPES:
        return dtype
    close = nearest(dtype, DTYPES) if isinstance(dtype, str) else None
    message = f"{dtype!r} is no dtype" + (f"; did you mean {close}?" if close else "")
    raise TypeError(message)
