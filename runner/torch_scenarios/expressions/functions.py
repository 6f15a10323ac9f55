"""The functions of the expression language over NumPy (the reference) and torch (the worker)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import cache, cached_property, lru_cache, reduce
from math import ceil, copysign, floor, isfinite, isnan, prod
from types import ModuleType
from typing import Any

import numpy as np

from torch_scenarios.errors import nearest
from torch_scenarios.expressions.arrays import (
    DEFAULT_FLOAT,
    ArrayLibrary,
    NumpyLibrary,
    TorchLibrary,
    Value,
    fit,
    is_exact,
    kind,
    make_array,
    promote,
    unreal,
    widest,
)
from torch_scenarios.expressions.operators import (
    RULES,
    Operators,
    Rule,
    bound,
    choose_dtypes,
    is_number,
)
from torch_scenarios.expressions.signatures import EACH, INDEX, SLICE
from torch_scenarios.limits import DEFAULT, Budget, Limits, explain_size
from torch_scenarios.vocabulary import DTYPES

# -------------------------------------------------------------------------------------------------
# Functions that make tensors: float32 unless `dtype` says otherwise.
#
# All are made by NumPy and handed to the library, so that both executors hold the same bits.


class Constructors:
    """The functions that make tensors, for one library.

    They charge before they make: `zeros([1 << 40])` is refused by its size.
    """

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
            "Shard": self.shard,
            "Replicate": self.replicate,
            "Partial": self.partial,
        }

    @staticmethod
    def shard(dim: Value) -> str:
        """Return the placement that cuts a tensor along a dimension: a word, as it is written."""
        return f"Shard({integer(dim, 'a dimension')})"

    @staticmethod
    def replicate() -> str:
        """Return the placement of which each member holds the whole tensor."""
        return "Replicate()"

    @staticmethod
    def partial(op: Value = "sum") -> str:
        """Return the placement of which each member holds a contribution."""
        return f"Partial({op})"

    def _make(self, array: np.ndarray[Any, Any], dtype: object) -> Value:
        return self._library.from_numpy(fit(array, dtype_name(dtype)))

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
        one = fit(filling, dtype_name(dtype))
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
        """From `start` (0 where only a stop is given) up to, without, `stop`.

        float32 like all that makes tensors, unlike torch.arange, which makes int64 of integers: one
        rule for all of them is easier to know than that of each. Whole numbers are computed as
        int64 where the dtype is exact, since float64 has none above 2 ** 53.
        """
        if stop is None:
            start, stop = 0, start
        first, last, by = (real_in(each) for each in (start, stop, step))
        if by == 0:
            message = "the step is zero"
            raise ValueError(message)
        self._budget.tensor(max(ceil((last - first) / by), 0))
        whole = all(isinstance(each, int) for each in (first, last, by))
        wide = np.int64 if whole and is_exact(dtype_name(dtype)) else np.float64
        return self._make(np.arange(first, last, by, dtype=wide), dtype)

    def linspace(
        self,
        start: Value,
        stop: Value,
        num: Value,
        dtype: Value = DEFAULT_FLOAT,
        endpoint: Value = True,
    ) -> Value:
        """`num` numbers at even distances from `start` to `stop`, which is the last of them."""
        (count,) = self._sizes([num])
        points = np.linspace(real_in(start), real_in(stop), count, endpoint=bool(endpoint))
        return self._make(points, dtype)

    def eye(
        self,
        n_rows: Value,
        n_cols: Value = None,
        k: Value = 0,
        dtype: Value = DEFAULT_FLOAT,
    ) -> Value:
        """Ones on the diagonal, `k` to the right of the main one."""
        rows, columns = self._sizes([n_rows, n_rows if n_cols is None else n_cols])
        return self._make(np.eye(rows, columns, k=integer(k, "k")), dtype)

    def random(self, shape: Value, seed: Value, dtype: Value = DEFAULT_FLOAT) -> Value:
        """Uniform float32 numbers in [0, 1) of NumPy's PCG64; the seed decides them.

        torch's generators give other numbers on a CPU and on a GPU, so that both executors take
        NumPy's. A list of integers is a seed as well: `random(3, [seed, rank])` is another tensor
        on each rank.
        """
        sizes = self._sizes(shape)
        seeds = seed if isinstance(seed, list) else [seed]
        if kind(dtype_name(dtype)) not in {"float", "complex"}:
            message = "random numbers in [0, 1) are floats"
            raise ValueError(message)
        numbers = [integer(each, "the seed") for each in seeds]
        if min(numbers, default=-1) < 0:
            message = "the seed is an integer that is not negative"
            raise ValueError(message)
        draw = _draw_again if prod(sizes) <= _SMALL_DRAW else _draw
        return self._make(draw(tuple(numbers), sizes), dtype)

    def _sizes(self, shape: Value) -> tuple[int, ...]:
        found = sizes(shape)
        self._budget.tensor(prod(found))
        return found


def _draw(seeds: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return random numbers; one seed alone is the same as a list of it."""
    return np.random.default_rng(seeds).random(shape, dtype=np.float32)


#: elements of random numbers that are kept: mostly each rank asks for the same, and copies them
_SMALL_DRAW = 4096
_draw_again = lru_cache(maxsize=256)(_draw)


def sizes(shape: Value) -> tuple[int, ...]:
    """Return a shape as sizes: an integer is one dimension."""
    parts = shape if isinstance(shape, list | tuple | range) else [shape]
    found = tuple(integer(each, "a size") for each in parts)
    if any(each < 0 for each in found):
        message = f"a size is negative: {list(found)}"
        raise ValueError(message)
    return found


def integer(value: Value, what: str) -> int:
    """Return an integer, or a tensor's only integer; TypeError names `what` it is for.

    A bool is refused, although Python counts it as an integer: `x[rank == 0]` would be an index of
    0 or 1. So is a float, for `world_size / 2` is 2.0 where `//` is meant.
    """
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
    message = f"{dtype!r} is not a dtype" + (f"; did you mean {close}?" if close else "")
    raise TypeError(message)


# -------------------------------------------------------------------------------------------------
# Parts of values over one library: indexing, slicing, and what a comprehension goes over.
#
# A part of a tensor by integers and slices is a view: what is stored into it, the tensor holds.
# One by a list or a mask is a copy.

#: what has items and is no tensor
SEQUENCES = (list, tuple, range)


class Parts:
    """The functions that take a value apart.

    `x[0:2]` is a view of x, as in torch: a send of it keeps x in use, and a receive into it changes
    x.
    """

    def __init__(self, operators: Operators) -> None:
        """Share the operators' library and budget."""
        self._operators = operators
        self._library = operators.library
        self._budget = operators.budget

    def table(self) -> dict[str, Callable[..., Any]]:
        """Return them by the keys that compiled expressions call them by."""
        return {INDEX: self.part, SLICE: slice, EACH: self.each}

    def part(self, value: Value, index: Value) -> Value:
        """`value[index]`: a view of a tensor, an item or a part of a list."""
        if index.__class__ is int and self._library.is_array(value):
            return self._library.view(value, (index,))
        if isinstance(value, SEQUENCES):
            if isinstance(index, slice):
                made = value[index]
                self._budget.charge_items(len(made))
                return made
            return value[index if index.__class__ is bool else integer(index, "an index")]
        if isinstance(value, dict):
            return value[index]
        if not self._library.is_array(value):
            message = f"{describe(value)} has no parts"
            raise TypeError(message)
        if isinstance(index, (list, range)) or self._library.is_array(index):
            return self._take(value, index)
        return self._library.view(value, self._index(index))

    def _index(self, index: Value) -> tuple[Any, ...]:
        parts = index if isinstance(index, tuple) else (index,)
        return tuple(self._index_part(each) for each in parts)

    @staticmethod
    def _index_part(part: Value) -> Value:
        """Return a part of an index as both libraries take it.

        torch has no slices with a negative step, so neither library may have one here.
        """
        if part is None or part.__class__ is int:
            return part
        if part.__class__ is slice:
            bounds = (part.start, part.stop, part.step)
            if part.step is None and all(each is None or each.__class__ is int for each in bounds):
                return part
            if part.step is not None and integer(part.step, "the step of a slice") < 1:
                message = "a tensor is sliced forwards only; flip(x) turns it round"
                raise ValueError(message)
            return slice(*(_bound(each) for each in bounds))
        return integer(part, "an index")

    def _take(self, value: Value, index: Value) -> Value:
        """Return a copy of the elements that integers, or a mask, choose along dimension 0.

        The elements are charged before they are taken: an index of a million zeros makes a tensor
        of a million rows. A mask cannot choose more than there are.
        """
        if not self._library.is_array(index):
            picked = [integer(each, "an index") for each in index]
            index = self._library.from_numpy(np.asarray(picked, dtype=np.int64))
        name = self._library.name(index)
        if kind(name) == "int" and not index.shape:
            return self._library.view(value, (int(index.item()),))
        if kind(name) not in {"int", "bool"}:
            message = f"an index is an integer or a mask, not {name}; use int(x) or astype"
            raise TypeError(message)
        rows = prod(value.shape[1:])
        self._budget.tensor(prod(index.shape) * rows if name != "bool" else prod(value.shape))
        return value[self._operators.prepare(index, "bool" if name == "bool" else "int64")]

    def each(self, iterable: Value, weight: int, unpacks: bool) -> Value:
        """Return what a comprehension goes over, charged; a tensor by its first dimension.

        `weight` is how many nodes a turn evaluates. With `unpacks` the items are gone over too,
        since each has several names: `[a + b for a, b in pairs]`.
        """
        if self._library.is_array(iterable):
            if not iterable.shape:
                message = "a tensor without dimensions has no items"
                raise TypeError(message)
            self._charge(iterable.shape[0], weight)
            view = self._library.view
            iterable = [view(iterable, (at,)) for at in range(iterable.shape[0])]
        elif isinstance(iterable, SEQUENCES):
            self._charge(len(iterable), weight)
        else:
            message = f"{describe(iterable)} has no items"
            raise TypeError(message)
        return [self.each(item, 1, unpacks=False) for item in iterable] if unpacks else iterable

    def _charge(self, count: int, weight: int) -> None:
        self._budget.charge_items(count)
        self._budget.operations(count * weight)


def _bound(value: Value) -> int | None:
    return None if value is None else integer(value, "the bound of a slice")


def describe(value: Value) -> str:
    """Return what a value is, as the subject of a complaint."""
    if value is None:
        return "a name with no value on this rank"
    if is_number(value):
        return f"the number {value}"
    if getattr(value, "shape", None) == ():
        return "a tensor without dimensions"
    if isinstance(value, str):
        return f"the word {value!r}"
    return f"{type(value).__name__} {value!r}"


# -------------------------------------------------------------------------------------------------
# Elementwise functions over one library.
#
# What rounds is computed in float64 (complex128) and rounded once to the dtype, so that both
# libraries give the same. Of plain numbers the result is a plain number.

#: the dtype of a complex number's size
_PARTS = {"complex64": "float32", "complex128": "float64"}


_CHOICES: dict[str, Callable[[Value, Value], Value]] = {"minimum": min, "maximum": max}

_WHOLE: dict[str, Callable[[Any], int]] = {"floor": floor, "ceil": ceil, "round": round}


class Elementwise:
    """exp, log, sqrt, abs, minimum, maximum, where, astype.

    >>> compute = numpy_arrays().functions()
    >>> compute["maximum()"](2, 3), compute["abs()"](-2)
    (3, 2)
    """

    def __init__(self, operators: Operators) -> None:
        """Share the operators' library and budget."""
        self._operators = operators
        self._library = operators.library
        self._budget = operators.budget
        self._multiply = operators.table()["*"]

    def table(self) -> dict[str, Callable[..., Any]]:
        """Return the functions by name."""
        return {
            "exp": self._make_rounding("exp"),
            "log": self._make_rounding("log"),
            "sqrt": self._make_rounding("sqrt"),
            "tanh": self._make_rounding("tanh"),
            "log1p": self._make_rounding("log1p"),
            "expm1": self._make_rounding("expm1"),
            "log2": self._make_rounding("log2"),
            "floor": self._make_to_integer("floor"),
            "ceil": self._make_to_integer("ceil"),
            "round": self._make_to_integer("round"),
            "sign": self.sign,
            "square": self.square,
            "isfinite": self._make_test("isfinite"),
            "isnan": self._make_test("isnan"),
            "abs": self.absolute,
            "minimum": self._make_choice("minimum"),
            "maximum": self._make_choice("maximum"),
            "where": self.where,
            "astype": self.astype,
        }

    def _make_rounding(self, name: str) -> Callable[[Any], Any]:
        """Return one of the functions whose result is rounded.

        Libraries differ in the last bit of exp or log of a float32. Computed in float64 and rounded
        once the results are the same in all but very rare cases. Exact dtypes give float32, as in
        torch.
        """
        function, of_numbers = getattr(self._library.xp, name), getattr(np, name)

        def round_each(x: Value) -> Value:
            x = self._operators.operand(x)
            if is_number(x):
                with np.errstate(all="ignore"):
                    return of_numbers(complex(x) if isinstance(x, complex) else float(x)).item()
            dtype = self._library.name(x)
            result = "float32" if is_exact(dtype) else dtype
            self._budget.charge_shape(x.shape)
            with self._library.quiet():
                made = function(self._operators.prepare(x, widest(result)))
            return self._operators.finish(made, result)

        return round_each

    def _make_to_integer(self, name: str) -> Callable[[Any], Any]:
        """Return `floor`, `ceil` or `round` (half to even, as the standard says).

        A tensor keeps its dtype; a number becomes a plain integer, so that it can count.
        """
        function, of_number = getattr(self._library.xp, name), _WHOLE[name]

        def whole(x: Value) -> Value:
            x = self._operators.operand(x)
            if is_number(x):
                number = real_in(x)
                return of_number(number) if isfinite(number) else number
            dtype = self._library.name(x)
            if kind(dtype) == "complex" or (kind(dtype) == "bool"):
                message = f"{name} takes real numbers, not {dtype}"
                raise TypeError(message)
            self._budget.charge_shape(x.shape)
            if is_exact(dtype):
                return self._library.copy(x)
            made = function(self._operators.prepare(x, widest(dtype)))
            return self._operators.finish(made, dtype)

        return whole

    def sign(self, x: Value) -> Value:
        """Return -1, 0 or 1; of a complex number its direction, x / abs(x)."""
        x = self._operators.operand(x)
        if is_number(x):
            if isinstance(x, complex):
                return x / abs(x) if x else x
            if isinstance(x, float):
                return x if isnan(x) or x == 0 else copysign(1.0, x)
            return (x > 0) - (x < 0)
        dtype = self._numeric("sign", x)
        if dtype.startswith("u"):
            made = self._library.xp.where(
                self._operators.prepare(x, "bool"),
                self._array(1, "int64"),
                self._array(0, "int64"),
            )
            return self._operators.finish(made, dtype)
        wide = self._operators.prepare(x, "int64" if is_exact(dtype) else widest(dtype))
        with self._library.quiet():
            if kind(dtype) == "complex":
                made = wide / self._library.xp.abs(wide)
                made = self._library.xp.where(wide == 0, wide, made)
            else:
                made = self._library.xp.sign(wide)
        return self._operators.finish(made, dtype)

    def square(self, x: Value) -> Value:
        """Return `x * x`."""
        x = self._operators.operand(x)
        if not is_number(x):
            self._numeric("square", x)
        return self._multiply(x, x)

    def _numeric(self, name: str, x: Value) -> str:
        """Return the dtype of a tensor of numbers; TypeError for one of truth values."""
        dtype = self._library.name(x)
        if dtype == "bool":
            message = f"{name} takes numbers, not bool"
            raise TypeError(message)
        self._budget.charge_shape(x.shape)
        return dtype

    def _make_test(self, name: str) -> Callable[[Any], Any]:
        """Return `isfinite` or `isnan`: true or false for each element."""
        function, of_numbers = getattr(self._library.xp, name), getattr(np, name)

        def test(x: Value) -> Value:
            x = self._operators.operand(x)
            if is_number(x):
                return bool(of_numbers(complex(x) if isinstance(x, complex) else float(x)))
            dtype = self._library.name(x)
            self._budget.charge_shape(x.shape)
            wide = "float64" if is_exact(dtype) else widest(dtype)
            return self._operators.finish(function(self._operators.prepare(x, wide)), "bool")

        return test

    def absolute(self, x: Value) -> Value:
        """`abs(x)`: of complex numbers their size."""
        x = self._operators.operand(x)
        if is_number(x):
            return abs(x)
        dtype = self._library.name(x)
        self._budget.charge_shape(x.shape)
        if dtype == "bool":
            return self._library.copy(x)
        compute = choose_dtypes(dtype)[1]
        with self._library.quiet():
            made = self._library.xp.abs(self._operators.prepare(x, compute))
        return self._operators.finish(made, _PARTS.get(dtype, dtype))

    def _make_choice(self, name: str) -> Callable[[Any, Any], Any]:
        function, choose = getattr(self._library.xp, name), _CHOICES[name]

        def choose_each(x1: Value, x2: Value) -> Value:
            first, second = self._operators.operand(x1), self._operators.operand(x2)
            if is_number(first) and is_number(second):
                nan = [each for each in (first, second) if isinstance(each, float) and isnan(each)]
                return nan[0] if nan else choose(first, second)
            dtype = self._operators.promote(first, second)
            if kind(dtype) == "complex":
                message = "complex numbers have no order"
                raise TypeError(message)
            self._operators.charge(first, second)
            compute = choose_dtypes(dtype)[1]
            return self._operators.finish(
                function(self._array(first, compute), self._array(second, compute)), dtype
            )

        return choose_each

    def where(self, condition: Value, x1: Value, x2: Value) -> Value:
        """Where the condition is true (not zero) the element of x1, elsewhere of x2."""
        condition, first, second = (self._operators.operand(each) for each in (condition, x1, x2))
        if is_number(condition) and is_number(first) and is_number(second):
            return first if condition else second
        if is_number(first) and is_number(second):
            first = self._operators.tensor(complex(first) if _is_complex(second) else first)
        dtype = self._operators.promote(first, second)
        chosen = self._array(condition, "bool")
        self._operators.charge(first, second)
        for each in (first, second):
            self._operators.charge(chosen, each)
        made = self._library.xp.where(chosen, self._array(first, dtype), self._array(second, dtype))
        return self._operators.finish(made, dtype)

    def astype(self, x: Value, dtype: Value) -> Value:
        """Return a copy in another dtype; integers wrap, floats are cut off towards zero."""
        array = self._operators.tensor(x)
        self._budget.charge_shape(array.shape)
        return self._library.cast(array, dtype_name(dtype))

    def _array(self, value: Value, dtype: str) -> Value:
        """Return an operand as an array of that dtype."""
        if is_number(value):
            return self._library.from_numpy(make_array(value, dtype, self._budget.elements))
        return self._operators.prepare(value, dtype)


def _is_complex(value: Value) -> bool:
    return isinstance(value, complex)


# -------------------------------------------------------------------------------------------------
# sum, prod, min, max, mean and matmul over one library.
#
# Of a tensor they reduce the elements; of a list of tensors they combine them element by element;
# of numbers they are Python's own. Floats are accumulated in float64 (complex128) and rounded
# once, because the reference of a collective is: `sum([before(x, r) for r in group_ranks(g)])` is
# exactly what an all_reduce must give. Integers of one tensor are summed in 64 bits, as the array
# API standard says; lists keep their dtype, and wrap.

_RULES = {rule.symbol: rule for rule in RULES}

#: the operators that store into their first operand
_INTO: dict[str, Callable[[Value, Value], Value]] = {"+": operator.iadd, "*": operator.imul}


class Reductions:
    """The functions that make less of more.

    >>> numpy_arrays().functions()["sum()"]([1, 2, 3])
    6

    The dtype of the result is torch's: the sum of a tensor of int32 is int64.

    >>> numpy_arrays().functions()["sum()"](np.array([1, 2], np.int32)).dtype.name
    'int64'
    """

    def __init__(
        self, operators: Operators, minimum: Callable[..., Any], maximum: Callable[..., Any]
    ) -> None:
        """Share the operators' library and budget; lists are combined by the functions given."""
        self._operators = operators
        self._library = operators.library
        self._budget = operators.budget
        self._minimum = minimum
        self._maximum = maximum

    def table(self) -> dict[str, Callable[..., Any]]:
        """Return the functions by name."""
        return {
            "sum": self.sum,
            "prod": self.prod,
            "min": self.min,
            "max": self.max,
            "mean": self.mean,
            "any": self._truth("any"),
            "all": self._truth("all"),
            "argmax": self._place("argmax"),
            "argmin": self._place("argmin"),
            "cumulative_sum": self.cumulative_sum,
            "matmul": self.matmul,
        }

    def sum(
        self, x: Value, axis: Value = None, keepdims: Value = None, dtype: Value = None
    ) -> Value:
        """Add up."""
        if isinstance(x, list | tuple | range):
            return self._combine("+", x, 0, axis)
        return self._accumulate("sum", x, axis, keepdims, dtype)

    def prod(
        self, x: Value, axis: Value = None, keepdims: Value = None, dtype: Value = None
    ) -> Value:
        """Multiply together."""
        if isinstance(x, list | tuple | range):
            return self._combine("*", x, 1, axis)
        return self._accumulate("prod", x, axis, keepdims, dtype)

    def min(self, x: Value, *more: Value, axis: Value = None, keepdims: Value = None) -> Value:
        """Return the least element, number, or the elementwise least of a list of tensors."""
        return self._extreme("min", self._minimum, x, more, axis, keepdims)

    def max(self, x: Value, *more: Value, axis: Value = None, keepdims: Value = None) -> Value:
        """Return the greatest element, number, or the elementwise greatest of a list of tensors."""
        return self._extreme("max", self._maximum, x, more, axis, keepdims)

    def mean(self, x: Value, axis: Value = None, keepdims: Value = None) -> Value:
        """Return the arithmetic mean; of integers as float32."""
        if isinstance(x, list | tuple | range):
            total = self._combine("+", x, 0, axis)
            if is_number(total):
                return total / len(x)
            return self._operators.arithmetic(_RULES["/"], total, len(x))
        array = self._operators.tensor(x)
        dtype = self._library.name(array)
        result = "float32" if is_exact(dtype) else dtype
        chosen = axes(axis)
        self._budget.charge_shape(array.shape)
        wide = self._operators.prepare(array, widest(result))
        with self._library.quiet():
            made = self._library.xp.sum(wide, axis=chosen, keepdims=bool(keepdims))
            count = prod(array.shape) // max(prod(made.shape), 1)
            return self._operators.finish(self._library.wrap(made) / count, result)

    # ------------------------------------------------------------------ of lists

    def _combine(self, symbol: str, items: Value, empty: int, axis: Value) -> Value:
        """Combine a list: numbers as numbers, tensors element by element in their own dtype."""
        if axis is not None:
            message = "a list has no axes; stack(list) makes one tensor of it"
            raise TypeError(message)
        self._budget.operations(len(items))
        if all(is_number(item) for item in items):
            rule = _RULES[symbol]
            return reduce(lambda first, second: bound(rule.scalar(first, second)), items, empty)
        operands = [self._operators.operand(item) for item in items]
        names = [self._library.name(each) for each in operands if not is_number(each)]
        result = reduce(promote, names)
        total = operands[0]
        total = +total if is_number(total) else self._library.cast(total, widest(result))
        for each in operands[1:]:
            total = self._fold(_RULES[symbol], total, each)
        return self._operators.finish(total, result)

    def _fold(self, rule: Rule, total: Value, each: Value) -> Value:
        """Return `total`, which no other value shares, combined with one more operand."""
        if is_number(total) and is_number(each):
            return rule.scalar(total, each)
        if is_number(total) or is_number(each) or total.shape != each.shape:
            return self._operators.arithmetic(rule, total, each)
        self._budget.charge_shape(each.shape)
        if is_exact(self._library.name(total)):
            each = self._operators.prepare(each, self._library.name(total))
        with self._library.quiet():
            return _INTO[rule.symbol](total, each)

    def _extreme(
        self,
        name: str,
        combine: Callable[..., Any],
        x: Value,
        more: tuple[Any, ...],
        axis: Value,
        keepdims: Value,
    ) -> Value:
        """Return the least or greatest of numbers, of a list's tensors, or of elements."""
        if more and not is_number(x):
            message = f"{name} takes one tensor or list, or numbers; of tensors: {name}imum(x, y)"
            raise TypeError(message)
        items = [x, *more] if more else x
        if isinstance(items, list | tuple | range):
            if not items:
                message = f"{name} of an empty list"
                raise ValueError(message)
            if axis is not None:
                message = "a list has no axes; stack(list) makes one tensor of it"
                raise TypeError(message)
            self._budget.operations(len(items))
            if all(item.__class__ in {int, float, bool} for item in items):
                return (min if name == "min" else max)(items)
            return reduce(combine, items[1:], self._operators.positive(items[0]))
        array = self._operators.tensor(x)
        dtype = self._library.name(array)
        if kind(dtype) == "complex":
            message = "complex numbers have no order"
            raise TypeError(message)
        self._budget.charge_shape(array.shape)
        wide = self._operators.prepare(array, widest(dtype))
        function = getattr(self._library.xp, name)
        with self._library.quiet():
            made = function(wide, axis=axes(axis), keepdims=bool(keepdims))
        return self._operators.finish(made, dtype)

    # ------------------------------------------------------------------ of one tensor

    def _accumulate(
        self,
        name: str,
        x: Value,
        axis: Value,
        keepdims: Value,
        dtype: Value,
    ) -> Value:
        array = self._operators.tensor(x)
        held = self._library.name(array)
        result = self._choose_sum_dtype(held, dtype)
        self._budget.charge_shape(array.shape)
        compute = "int64" if is_exact(result) and is_exact(held) else widest(held)
        wide = self._operators.prepare(array, compute)
        with self._library.quiet():
            made = getattr(self._library.xp, name)(wide, axis=axes(axis), keepdims=bool(keepdims))
        return self._operators.finish(made, result)

    @staticmethod
    def _choose_sum_dtype(held: str, dtype: Value) -> str:
        """Return the dtype of a sum: 64 bits of integers, unless one is asked for."""
        if dtype is not None:
            return dtype_name(dtype)
        if is_exact(held):
            return "uint64" if held.startswith("u") else "int64"
        return held

    def _truth(self, name: str) -> Callable[..., Any]:
        """Return `any` or `all`: of a tensor's elements, or of a list of numbers."""
        function, of_numbers = getattr(self._library.xp, name), {"any": any, "all": all}[name]

        def truth(x: Value, axis: Value = None, keepdims: Value = None) -> Value:
            if isinstance(x, SEQUENCES) and all(is_number(item) for item in x):
                self._budget.operations(len(x))
                return of_numbers(x)
            array = self._operators.tensor(x)
            self._budget.charge_shape(array.shape)
            wide = self._operators.prepare(array, "bool")
            made = function(wide, axis=axes(axis), keepdims=bool(keepdims))
            return self._operators.finish(made, "bool")

        return truth

    def _place(self, name: str) -> Callable[..., Any]:
        """Return `argmax` or `argmin`: where the first extreme element is, counted from 0.

        Of a list of numbers its place in the list; of a tensor without an axis the flat one.
        """
        function, extreme = getattr(np, name), {"argmax": max, "argmin": min}[name]

        def place(x: Value, axis: Value = None, keepdims: Value = None) -> Value:
            if isinstance(x, SEQUENCES) and x and all(is_number(item) for item in x):
                self._budget.operations(len(x))
                numbers = [real_in(item) for item in x]
                return numbers.index(extreme(numbers))
            array = self._operators.tensor(x)
            dtype = self._library.name(array)
            if kind(dtype) == "complex":
                message = "complex numbers have no order"
                raise TypeError(message)
            if not prod(array.shape):
                message = f"{name} of a tensor without elements"
                raise ValueError(message)
            self._budget.charge_shape(array.shape)
            # which of equal elements is the first, only one library should say
            wide = self._library.to_numpy(self._operators.prepare(array, widest(dtype)))
            made = np.asarray(
                function(wide, axis=None if axis is None else integer(axis, "an axis"))
            )
            if keepdims:
                kept = [1] * wide.ndim if axis is None else None
                made = made.reshape(kept) if kept is not None else np.expand_dims(made, axis)
            return self._library.from_numpy(made.astype(np.int64))

        return place

    def cumulative_sum(
        self,
        x: Value,
        axis: Value = None,
        dtype: Value = None,
        include_initial: Value = None,
    ) -> Value:
        """Return the sums up to each element along an axis; `include_initial` puts a 0 first."""
        array = self._operators.tensor(x)
        held = self._library.name(array)
        if axis is None and len(array.shape) != 1:
            message = "cumulative_sum of several dimensions needs its axis"
            raise ValueError(message)
        along = 0 if axis is None else integer(axis, "an axis")
        result = self._choose_sum_dtype(held, dtype)
        self._budget.charge_shape(array.shape)
        compute = "int64" if is_exact(result) and is_exact(held) else widest(held)
        wide = self._operators.prepare(array, compute)
        with self._library.quiet():
            made = self._library.xp.cumulative_sum(
                wide, axis=along, include_initial=bool(include_initial)
            )
        return self._operators.finish(made, result)

    def matmul(self, x1: Value, x2: Value) -> Value:
        """Return the matrix product; floats are computed in float64."""
        first, second = self._operators.tensor(x1), self._operators.tensor(x2)
        dtype = self._operators.promote(first, second)
        if dtype == "bool":
            message = "matmul takes numbers, not bool"
            raise TypeError(message)
        shapes = list(first.shape), list(second.shape)
        if not all(shapes) or shapes[0][-1] != shapes[1][-2 if len(shapes[1]) > 1 else 0]:
            message = f"matrices of shapes {shapes[0]} and {shapes[1]} have no product"
            raise ValueError(message)
        columns = shapes[1][-1] if len(shapes[1]) > 1 else 1
        batches = max(prod(shapes[0][:-2]), 1) * max(prod(shapes[1][:-2]), 1)
        rows = shapes[0][-2] if len(shapes[0]) > 1 else 1
        self._budget.work(prod(shapes[0]) + prod(shapes[1]))
        products = batches * rows * columns * shapes[0][-1]
        if is_exact(dtype):
            self._budget.work(products)  # no library of linear algebra has integers
        else:
            self._budget.matmul(products)
        self._budget.tensor(batches * rows * columns)
        compute = "int64" if is_exact(dtype) else widest(dtype)
        operands = (self._operators.prepare(each, compute) for each in (first, second))
        with self._library.quiet():
            made = self._library.xp.matmul(*operands)
        return self._operators.finish(made, dtype)


# -------------------------------------------------------------------------------------------------
# Shapes and conversions over one library.
#
# `reshape` (where the strides allow it) and `permute_dims` give views: what is stored into them,
# the tensor holds. Everything else copies.


class ShapeFunctions:
    """The functions on shapes, and on lists of tensors.

    >>> numpy_arrays().functions()["shape()"](np.zeros((2, 3)))
    [2, 3]
    """

    def __init__(self, operators: Operators, parts: Parts) -> None:
        """Share the operators' library and budget, and how a tensor is taken apart."""
        self._operators = operators
        self._parts = parts
        self._library = operators.library
        self._budget = operators.budget

    def views(self) -> dict[str, Callable[..., Any]]:
        """Return what shares memory, or looks at no element: it works in every dtype."""
        return {
            "reshape()": self.reshape,
            "permute_dims()": self.permute_dims,
            "matrix_transpose()": self.matrix_transpose,
            "len()": self.len,
            "range()": self.range,
            "shape()": self.shape,
            "numel()": self.numel,
            "int()": self.int,
            "float()": self.float,
            "bool()": self.bool,
            "bit_length()": self.bit_length,
            "bit_count()": self.bit_count,
        }

    def table(self) -> dict[str, Callable[..., Any]]:
        """Return the functions that copy, by name."""
        return {
            "concat": self.concat,
            "stack": self.stack,
            "flip": self.flip,
            "roll": self.roll,
        }

    # ------------------------------------------------------------------ shapes

    def reshape(self, x: Value, shape: Value) -> Value:
        """Return the elements in another shape: a view where the strides allow it."""
        array = self._operators.tensor(x)
        parts = shape if isinstance(shape, SEQUENCES) else [shape]
        sizes = tuple(integer(each, "a size") for each in parts)
        self._budget.charge_shape(array.shape)
        known = prod(each for each in sizes if each != -1)
        count = prod(array.shape)
        if sizes.count(-1) > 1 or min(sizes, default=0) < -1 or not _fills(count, known, sizes):
            message = f"{count} elements do not fill the shape {list(sizes)}"
            raise ValueError(message)
        return self._library.xp.reshape(array, sizes)

    def permute_dims(self, x: Value, axes: Value) -> Value:
        """Return a view with its dimensions in another order."""
        array = self._operators.tensor(x)
        order = tuple(integer(each, "an axis") for each in axes)
        return self._library.xp.permute_dims(array, order)

    def matrix_transpose(self, x: Value) -> Value:
        """Return a view with the last two dimensions exchanged."""
        array = self._operators.tensor(x)
        depth = len(array.shape)
        if depth < 2:
            message = f"matrix_transpose takes a matrix, not a tensor of {depth} dimensions"
            raise ValueError(message)
        order = (*range(depth - 2), depth - 1, depth - 2)
        return self._library.xp.permute_dims(array, order)

    def concat(self, arrays: Value, axis: Value = 0) -> Value:
        """Join tensors along a dimension they have."""
        return self._join("concat", arrays, axis)

    def stack(self, arrays: Value, axis: Value = 0) -> Value:
        """Join tensors of one shape along a new dimension."""
        return self._join("stack", arrays, axis)

    def _join(self, name: str, arrays: Value, axis: Value) -> Value:
        if self._library.is_array(arrays) and arrays.shape:
            arrays = self._parts.each(arrays, 1, unpacks=False)
        if not isinstance(arrays, SEQUENCES) or not arrays:
            message = f"{name} takes a list of tensors, and at least one"
            raise TypeError(message)
        parts = [self._operators.tensor(each) for each in arrays]
        self._budget.tensor(sum(prod(each.shape) for each in parts))
        dtype = self._library.name(parts[0])
        for each in parts[1:]:
            dtype = promote(dtype, self._library.name(each))
        cast = [self._operators.prepare(each, dtype) for each in parts]
        function = getattr(self._library.xp, name)
        if axis is None and name == "concat":
            return function([self._library.xp.reshape(each, (-1,)) for each in cast], axis=0)
        return function(cast, axis=integer(axis, "an axis"))

    def flip(self, x: Value, axis: Value = None) -> Value:
        """Return a copy with the elements in reverse, along every dimension or those given."""
        array = self._operators.tensor(x)
        self._budget.charge_shape(array.shape)
        return self._library.copy(self._library.xp.flip(array, axis=axes(axis)))

    def roll(self, x: Value, shift: Value, axis: Value = None) -> Value:
        """Return a copy whose elements moved on by `shift`, the last ones coming in first."""
        array = self._operators.tensor(x)
        self._budget.charge_shape(array.shape)
        return self._library.xp.roll(array, axes(shift), axis=axes(axis))

    def len(self, x: Value) -> int:
        """Return the items of a list, or a tensor's first size."""
        if isinstance(x, (*SEQUENCES, dict)):
            return len(x)
        if self._library.is_array(x) and x.shape:
            return int(x.shape[0])
        message = f"{describe(x)} has no length"
        raise TypeError(message)

    def shape(self, x: Value) -> list[int]:
        """Return the sizes."""
        return [int(size) for size in self._operators.tensor(x).shape]

    def numel(self, x: Value) -> int:
        """Return the number of elements."""
        return prod(self._operators.tensor(x).shape)

    def range(self, start: Value, stop: Value = None, step: Value = 1) -> range:
        """Return Python's range."""
        first, last = (0, start) if stop is None else (start, stop)
        what = "a bound of range"
        made = range(integer(first, what), integer(last, what), integer(step, what))
        if made and (made[-1] - made[0]) // made.step + 1 > self._budget.items:
            self._budget.charge_items(self._budget.items + 1)
        return made

    # ------------------------------------------------------------------ numbers

    @staticmethod
    def bit_length(n: Value) -> int:
        """Return how many bits an integer has: 0 for 0, 4 for 8."""
        return integer(n, "what bit_length takes").bit_length()

    @staticmethod
    def bit_count(n: Value) -> int:
        """Return how many bits of an integer are ones."""
        return integer(n, "what bit_count takes").bit_count()

    @staticmethod
    def int(x: Value) -> int:
        """Return a number, or a tensor's only element, cut off towards zero."""
        return int(real_in(x))

    @staticmethod
    def float(x: Value) -> float:
        """Return a number, or a tensor's only element, as a float."""
        return float(real_in(x))

    @staticmethod
    def bool(x: Value) -> bool:
        """Return whether a number, or a tensor's only element, is not zero."""
        return bool(number_in(x))


def _fills(count: int, known: int, sizes: tuple[int, ...]) -> bool:
    if -1 in sizes:
        return known > 0 and count % known == 0
    return count == known


# -------------------------------------------------------------------------------------------------
# The functions of the expression language over NumPy (the reference) and torch (the worker).
#
# One table of names, written once over a :class:`torch_scenarios.expressions.arrays.Library`; the
# two classes here put it together. Both keep :class:`torch_scenarios.expressions.arrays.Arrays`.
# Torch is handed in.


class NumpyArrays:
    """The array library of the reference. `limits` bound what is made outside of expressions.

    >>> arrays = NumpyArrays()
    >>> made = arrays.array([1, 2], "float32")
    >>> arrays.is_array(made), arrays.dtype(made)
    (True, 'float32')
    """

    def __init__(self, limits: Limits = DEFAULT) -> None:
        """Take NumPy."""
        self._library: ArrayLibrary = NumpyLibrary()
        self._limits = limits
        self._budget = Budget(limits)

    @cached_property
    def _operators(self) -> Operators:
        return Operators(self._library, self._budget)

    @cached_property
    def _parts(self) -> Parts:
        return Parts(self._operators)

    @cached_property
    def _shaper(self) -> ShapeFunctions:
        return ShapeFunctions(self._operators, self._parts)

    @cached_property
    def _copiers(self) -> dict[str, Callable[..., Any]]:
        """The functions that make new tensors from tensors, by name."""
        elementwise = Elementwise(self._operators).table()
        reductions = Reductions(
            self._operators, elementwise["minimum"], elementwise["maximum"]
        ).table()
        return {**elementwise, **reductions, **self._shaper.table()}

    @cached_property
    def _functions(self) -> dict[str, Callable[..., Any]]:
        copying = self._copiers
        made = {**Constructors(self._operators).table(), **copying}
        return {
            **{f"{name}()": function for name, function in made.items()},
            **self._parts.table(),
            **self._shaper.views(),
            **self._operators.table(),
            "@": copying["matmul"],
        }

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """Return what compiled expressions call: functions as `name()`, and guarded operators."""
        return self._functions

    def array(self, data: Value, dtype: str) -> Value:
        """Make an array from a number, a nested list or an array; the result is a fresh copy.

        ValueError where the data is not rectangular or does not fit the dtype.
        """
        name = dtype_name(dtype)
        if self._library.is_array(data):
            if kind(self._library.name(data)) == "complex" and kind(name) != "complex":
                raise ValueError(unreal(name))
            return self._library.cast(self._library.wrap(data), name)
        return self._library.from_numpy(make_array(data, name, self._limits.max_elements))

    def copy(self, value: Value) -> Value:
        """Return an array that shares no memory with `value`; dense strides are kept."""
        return self._library.copy(value)

    def is_array(self, value: object) -> bool:
        """Return whether `value` is an array of this library."""
        return self._library.is_array(value)

    def dtype(self, value: Value) -> str:
        """Return the name of the dtype of an array."""
        return self._library.name(value)

    def shares(self, part: Value, array: Value) -> bool:
        """Return whether a part of an array is in the array's own memory, and no copy."""
        return self._library.shares(part, array)

    def store(self, part: Value, value: Value) -> None:
        """Store a value into a part of an array, broadcast and cast as torch's `copy_` does.

        Numbers are cast from what they are: integers exactly. ValueError where it does not fit.
        """
        if not self._library.is_array(value):
            value = self._library.from_numpy(_numbers_in(value))
        shape, given = tuple(part.shape), tuple(value.shape)
        missing = len(shape) - len(given)
        alike = zip(shape[missing:], given, strict=True) if missing >= 0 else ((1, 0),)
        if any(one not in {1, size} for size, one in alike):
            message = f"a value of shape {list(given)} does not fit a part of shape {list(shape)}"
            raise ValueError(message)
        cast = self._library.cast(value, self._library.name(part))
        part[...] = self._library.xp.broadcast_to(cast, shape)

    def reshape(self, value: Value, shape: tuple[int, ...]) -> Value:
        """Return `value` in another shape; a single element fills the shape.

        ValueError where the elements do not fill it, or where it is too large.
        """
        count = prod(shape)
        if count > self._limits.max_elements:
            raise ValueError(explain_size(count, self._limits.max_elements))
        if min(shape, default=0) < 0:
            message = f"a size is negative: {list(shape)}"
            raise ValueError(message)
        held = prod(value.shape)
        if held == 1 != count:
            single = self._library.xp.reshape(value, (1,) * len(shape))
            return self._library.copy(self._library.xp.broadcast_to(single, tuple(shape)))
        if held != count:
            message = f"{held} elements do not fill the shape {list(shape)}"
            raise ValueError(message)
        return self._library.xp.reshape(value, tuple(shape))


def _numbers_in(value: Value) -> np.ndarray[Any, Any]:
    """Return numbers as an array of the widest type of their kind."""
    found = np.asarray(value)
    if found.dtype.kind not in "biufc":
        message = "only a tensor, or numbers, can be stored"
        raise TypeError(message)
    return found.astype(
        {"b": np.bool_, "f": np.float64, "c": np.complex128}.get(found.dtype.kind, found.dtype)
    )


@cache
def numpy_arrays(limits: Limits = DEFAULT) -> NumpyArrays:
    """Return the one array library of the reference under these limits.

    It keeps nothing from one evaluation to the next; to build its table of functions takes longer
    than to analyse a small scenario.
    """
    return NumpyArrays(limits)


class TorchArrays(NumpyArrays):
    """The array library of the worker: the same functions on tensors of one device.

    What torch cannot compute (float8, unsigned integers beyond uint8) NumPy does, on the host.

        x + y   of float8     to the host, NumPy with ml_dtypes, back to the device
    """

    def __init__(self, torch: ModuleType, device: object = "cpu", limits: Limits = DEFAULT) -> None:
        """Take torch as it was imported by the caller."""
        super().__init__(limits)
        self._library = TorchLibrary(torch, device)
        self._host = NumpyArrays(limits)
        self._host._budget = self._budget  # noqa: SLF001 -- its own class: one budget for both

    @cached_property
    def _operators(self) -> Operators:
        return Operators(self._library, self._budget, self._host._operators)  # noqa: SLF001

    @cached_property
    def _copiers(self) -> dict[str, Callable[..., Any]]:
        host = self._host._copiers  # noqa: SLF001 -- its own class
        return {
            name: self._make_extreme(function, host[name], is_product=name == "matmul")
            for name, function in super()._copiers.items()
        }

    def _make_extreme(
        self, function: Callable[..., Any], host: Callable[..., Any], *, is_product: bool
    ) -> Callable[..., Any]:
        library = self._library

        def leaves(value: Value) -> bool:
            if isinstance(value, list | tuple):
                return any(leaves(item) for item in value)
            return library.is_array(value) and library.must_leave(
                library.name(value), is_product=is_product
            )

        def lower(value: Value) -> Value:
            if isinstance(value, list | tuple):
                return [lower(item) for item in value]
            return library.to_numpy(value) if library.is_array(value) else value

        def either(*arguments: Value, **keywords: Value) -> Value:
            if not any(leaves(value) for value in (*arguments, *keywords.values())):
                return function(*arguments, **keywords)
            made = host(
                *(lower(value) for value in arguments),
                **{name: lower(value) for name, value in keywords.items()},
            )
            return library.from_numpy(made) if self._host.is_array(made) else made

        return either
