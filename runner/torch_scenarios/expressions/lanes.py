"""One value for each of many ranks: compiled expressions, run once for all of them.

What differs from rank to rank is bound to :class:`Lanes` (a number on each rank) or :class:`Stack`
(a tensor on each rank), what is the same to itself; then the expression's own code is run, with the
functions of :func:`lift_functions`. Where Python needs one truth value, size or list and the ranks
disagree, :class:`Diverge` says which ranks go together, and :func:`split` runs the same code on
each part; at last on one rank alone, as the worker does. So there is one semantics of expressions:
what is here may be slower or quicker than rank by rank, and never gives another value.

A row is one rank's place among those that are computed together; `L` is the number of rows. Knows
no plan and no memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from math import prod
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from torch_scenarios.errors import ScenarioError
from torch_scenarios.expressions.arrays import Arrays
from torch_scenarios.expressions.evaluator import CANNOT_COMPUTE, TypedEvaluator
from torch_scenarios.expressions.hollow import ValueNeeded, hollow, is_hollow, pick
from torch_scenarios.expressions.signatures import BEGIN, CHAIN, EACH, INDEX, SLICE
from torch_scenarios.expressions.values import Selector
from torch_scenarios.limits import BoundError

#: whatever an expression is worth on many ranks: of one of the two classes here where it differs
Value: TypeAlias = Any

#: the functions of the language by the keys that compiled expressions call them by
Functions: TypeAlias = Mapping[str, Callable[..., Any]]

T = TypeVar("T")

#: beyond this an int64, or a double, does not calculate as Python's integers do
EXACT = 2**53

#: items of all rows' lists together that are turned into lanes; of longer ones rows part
ITEMS = 2**20

#: bits of the widest integer that a lane holds
_BITS = 63


class Diverge(Exception):
    """Rows cannot go on together. `labels` `[L]`: the same for rows that can; None: none can.

        x if rank < 2 else y        on ranks 0 to 3, x and y of different shapes
        Diverge([True, True, False, False])

    `split` then evaluates the expression once for each label, and joins what comes. It is raised
    and not handled on the spot, because the rows part in the middle of an expression: its beginning
    is computed again for each part, and an expression has no effects.
    """

    def __init__(self, labels: NDArray[Any] | None = None) -> None:
        """Part the rows by their labels."""
        super().__init__()
        self.labels = labels


# -------------------------------------------------------------------------------------------------
# A number on each rank, with Python's operators.
#
# Integers are int64 and stay within 2**53 after every operation, where int64 and double calculate
# as Python's integers do; a bound of their size, which grows with each operation, tells when to
# look. What is beyond is computed rank by rank.


def _operator(symbol: str, *, swapped: bool = False) -> Callable[[Lanes, Any], Lanes]:
    """Return the method of an operator: of `x + y`, or swapped of `y + x`."""
    if swapped:
        return lambda self, other: _apply_to_numbers(symbol, other, self)
    return lambda self, other: _apply_to_numbers(symbol, self, other)


class Lanes:
    """A plain number on each rank: `values` `[L]` of bool, int64 or float64.

    >>> rank = Lanes(np.arange(4))
    >>> ((rank + 1) % 4).values, (rank > 1).values
    (array([1, 2, 3, 0]), array([False, False,  True,  True]))

    It does to all ranks what Python does to the number of one, integer division and the sign of a
    remainder included. Where one number cannot stand for all, as in `if`, it raises.
    """

    __slots__ = ("_most", "values")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, values: NDArray[Any], most: int | None = None) -> None:
        """Hold numbers; no integer among them is larger than `most`, whatever its sign."""
        self.values = values
        self._most = most

    @property
    def kind(self) -> str:
        """`b`, `i` or `f`: bool, int, float."""
        return str(self.values.dtype.kind)

    @property
    def size(self) -> int:
        """How many rows there are."""
        return len(self.values)

    @property
    def most(self) -> int:
        """What no integer exceeds in size."""
        if self._most is None:
            self._most = int(np.abs(self.values.astype(np.int64)).max(initial=0))
        return self._most

    def row(self, row: int) -> Any:
        """Return one rank's number, as Python's."""
        return self.values[row].item()

    def among(self, rows: NDArray[np.int64]) -> Lanes:
        """Return the numbers of some rows."""
        return Lanes(self.values[rows], self._most)

    def copy(self) -> Lanes:
        """Return the numbers themselves, which nothing changes."""
        return self

    def __bool__(self) -> bool:
        """Return what all rows agree on; Diverge where they do not."""
        return _agreed(self.values != 0)

    def __index__(self) -> int:
        """Raise Diverge: there is no one integer."""
        raise Diverge(self.values)

    def __iter__(self) -> Iterator[Any]:
        """Raise Diverge: a number has no items, and Python says so rank by rank."""
        raise Diverge

    def __repr__(self) -> str:
        """Show the numbers."""
        return f"Lanes({self.values!r})"

    __add__, __radd__ = _operator("+"), _operator("+", swapped=True)
    __sub__, __rsub__ = _operator("-"), _operator("-", swapped=True)
    __mul__, __rmul__ = _operator("*"), _operator("*", swapped=True)
    __truediv__, __rtruediv__ = _operator("/"), _operator("/", swapped=True)
    __floordiv__, __rfloordiv__ = _operator("//"), _operator("//", swapped=True)
    __mod__, __rmod__ = _operator("%"), _operator("%", swapped=True)
    __and__, __rand__ = _operator("&"), _operator("&", swapped=True)
    __or__, __ror__ = _operator("|"), _operator("|", swapped=True)
    __eq__, __ne__ = _operator("=="), _operator("!=")  # type: ignore[assignment]
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("<", "<=", ">", ">="))

    def __pos__(self) -> Lanes:
        """`+x`: an integer of a bool."""
        return Lanes(_integers(self.values), self._most) if self.kind != "f" else self

    def __neg__(self) -> Lanes:
        """`-x`."""
        if self.kind == "f":
            return Lanes(-self.values)
        return Lanes(-_integers(self.values), self._most)


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
}
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

#: operators whose operands, and results, may be bool
_BITWISE = {"&", "|", "^"}


def _agreed(values: NDArray[np.bool_]) -> bool:
    if values.all():
        return True
    if not values.any():
        return False
    raise Diverge(values)


def _integers(values: Any) -> Any:
    """Return numbers for NumPy, a bool as an integer: between bools its operators mean others."""
    return values.astype(np.int64) if values.dtype.kind == "b" else values


def _number(value: Value) -> tuple[Any, int, str]:
    """Return a number, or one for each row, for NumPy: its values, its size, its kind.

    The size is a bound of what integers are worth, and 0 for floats, which have none. Diverge for
    an integer above 2 ** 53, a complex number, and what is no number.
    """
    if value.__class__ is Lanes:
        kind = value.kind
        return value.values, 0 if kind == "f" else value.most, kind
    if value.__class__ is int:
        if not -EXACT <= value <= EXACT:
            raise Diverge
        return value, abs(value), "i"
    if value.__class__ is bool:
        return np.bool_(value), int(value), "b"
    if value.__class__ is float:
        return value, 0, "f"
    raise Diverge


def _apply_to_numbers(symbol: str, first: Value, second: Value) -> Lanes:
    """Apply an operator to numbers; Diverge where NumPy's result is not surely Python's.

    The bound of the result comes from those of the operands, so that no array is looked at as long
    as it is small: 1,000 times 1,000 is at most 1,000,000. Where a bound of a product says too
    much, the product is computed as floats first. Those are exact up to 2 ** 53, and beyond it is
    large enough in any case to be seen.

    >>> try:
    ...     Lanes(np.array([1, 2**30])) * Lanes(np.array([1, 2**30]))
    ... except Diverge:
    ...     "rank by rank"
    'rank by rank'
    """
    one, size1, kind1 = _number(first)
    two, size2, kind2 = _number(second)
    if kind1 == "b" and (kind2 != "b" or symbol not in _BITWISE):
        one, kind1 = one.astype(np.int64), "i"
    if kind2 == "b" and kind1 != "b":
        two, kind2 = two.astype(np.int64), "i"
    if symbol in COMPARED:
        return Lanes(COMPARED[symbol](one, two), 1)
    if kind1 == "b":
        return Lanes(ARITHMETIC[symbol](one, two), 1)
    if symbol == "/" or "f" in {kind1, kind2}:
        return _apply_to_floats(symbol, one, two)
    most = _SIZES[symbol](one, size1, two, size2)
    if most > EXACT and symbol == "*":
        with np.errstate(all="ignore"):
            if np.abs(np.multiply(one, two, dtype=np.float64)).max(initial=0) > EXACT:
                raise Diverge
    made = Lanes(ARITHMETIC[symbol](one, two), most if most <= EXACT else None)
    if made.most > EXACT:
        raise Diverge
    return made


def _apply_to_floats(symbol: str, one: Any, two: Any) -> Lanes:
    """Apply an operator to floats, or divide; Python has its own rules for what is left over.

    Sums, products and quotients of doubles are rounded once by IEEE 754, in NumPy as in Python.
    `//` and `%` of floats are computed in several steps, which differ.
    """
    if symbol not in {"+", "-", "*", "/"}:
        raise Diverge
    if symbol == "/":
        _police_divisor(two)
    with np.errstate(all="ignore"):
        apply = ARITHMETIC[symbol]
        return Lanes(apply(np.asarray(one, np.float64), np.asarray(two, np.float64)))


def _police_divisor(divisor: Any) -> None:
    """Raise what Python raises; which rows it is, only rank by rank tells."""
    if divisor == 0 if divisor.__class__ is int else np.any(np.equal(divisor, 0)):
        message = "division by zero"
        raise ZeroDivisionError(message)


def _police_shift(by: Any, size: int) -> None:
    if size > _BITS or np.any(np.less(by, 0)):
        raise Diverge


def _size_of_sum(_one: Any, size1: int, _two: Any, size2: int) -> int:
    return size1 + size2


def _size_of_product(_one: Any, size1: int, _two: Any, size2: int) -> int:
    return size1 * size2


def _size_of_quotient(_one: Any, size1: int, two: Any, _size2: int) -> int:
    _police_divisor(two)
    return size1


def _size_of_remainder(_one: Any, _size1: int, two: Any, size2: int) -> int:
    """Return a bound of remainders.

    Python's has the sign of the divisor, and is smaller than that.
    """
    _police_divisor(two)
    return size2


def _size_of_bits(_one: Any, size1: int, _two: Any, size2: int) -> int:
    """Return a bound of `&`, `|` and `^`: no result has more bits than the wider operand."""
    return 1 << max(size1.bit_length(), size2.bit_length())


def _size_shifted_left(_one: Any, size1: int, two: Any, size2: int) -> int:
    _police_shift(two, size2)
    if size1 << size2 > EXACT:
        raise Diverge
    return size1 << size2


def _size_shifted_right(_one: Any, size1: int, two: Any, size2: int) -> int:
    _police_shift(two, size2)
    return size1


_SIZES: dict[str, Callable[[Any, int, Any, int], int]] = {
    "+": _size_of_sum,
    "-": _size_of_sum,
    "*": _size_of_product,
    "//": _size_of_quotient,
    "%": _size_of_remainder,
    "&": _size_of_bits,
    "|": _size_of_bits,
    "^": _size_of_bits,
    "<<": _size_shifted_left,
    ">>": _size_shifted_right,
}


# -------------------------------------------------------------------------------------------------
# A tensor on each rank.


class Stack:
    """A tensor on each rank, all of one shape and dtype: `[L, *shape]`, shared with nothing.

    The methods are what a part of a tensor needs: a subclass may be a view into what a name holds.

    >>> x = Stack(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> x.size, x.shape
    (2, (2,))
    >>> x.index((1,)).values
    array([2., 4.])

    Dimension 0 is the ranks and no dimension of the tensors: `x[1]` is the second element of each.
    """

    __slots__ = ("_values",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, values: NDArray[Any]) -> None:
        """Hold the elements `[L, *shape]`."""
        self._values = values

    @property
    def values(self) -> NDArray[Any]:
        """The elements `[L, *shape]`."""
        return self.take()

    @property
    def size(self) -> int:
        """How many rows there are."""
        return len(self._values)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one rank's tensor."""
        return self._values.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of every rank's tensor."""
        return self._values.dtype

    def take(self, rows: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """Return the elements `[L, *shape]`, or a copy of those of some rows."""
        return self._values if rows is None else pick(self._values, rows)

    def row(self, row: int) -> NDArray[Any]:
        """Return one rank's tensor."""
        return np.asarray(self._values[row, ...])

    def among(self, rows: NDArray[np.int64]) -> Stack:
        """Return the tensors of some rows."""
        return Stack(pick(self._values, rows))

    def copy(self) -> Stack:
        """Return tensors that nothing else holds."""
        found = self.take()
        return Stack(found if is_hollow(found) else found.copy())

    def index(self, index: tuple[Any, ...]) -> Stack:
        """Return the same part of every tensor, by integers, slices and None."""
        return Stack(self._values[(slice(None), *index, ...)])

    def gather(self, at: NDArray[np.int64]) -> Stack:
        """Return each tensor's own part, by places `[L, ...]` along dimension 0."""
        return Stack(gather_parts(self._values, at))

    def reshape(self, shape: tuple[int, ...]) -> Stack:
        """Return the tensors in another shape of as many elements."""
        return Stack(self._values.reshape(len(self._values), *shape))

    def own_parts(self, _parts: Callable[[NDArray[Any], int], Any]) -> Stack | None:
        """Return the part of each tensor that a function takes of it; None where it is a copy."""
        return None

    def join(self, parts: Sequence[tuple[NDArray[np.int64], Any]], size: int) -> Stack:
        """Return as one what is a tensor of one shape and dtype on all of `size` rows."""
        if any(
            is_hollow(value.take() if isinstance(value, Stack) else value) for _, value in parts
        ):
            return Stack(hollow((size, *self.shape), self.dtype))
        whole = np.empty((size, *self.shape), self.dtype)
        for rows, value in parts:
            whole[rows] = value.take() if isinstance(value, Stack) else value
        return Stack(whole)

    def __bool__(self) -> bool:
        """Return what all rows agree on; Diverge where they do not, or a tensor has no truth."""
        if prod(self.shape) != 1:
            raise Diverge
        if is_hollow(self.take()):
            raise ValueNeeded
        return _agreed(np.asarray(self.take().reshape(-1) != 0))

    def __eq__(self, other: object) -> bool:
        """Raise Diverge: only the language's own functions compare tensors, and take them apart."""
        raise Diverge

    def __iter__(self) -> Iterator[Any]:
        """Raise Diverge, as `==` does."""
        raise Diverge


def gather_parts(values: NDArray[Any], at: NDArray[np.int64]) -> NDArray[Any]:
    """Return from each of `values` `[L or 1, n, ...]` what is at places `[L, ...]`."""
    if is_hollow(values):
        return hollow((*at.shape, *values.shape[2:]), values.dtype)
    if len(values) == 1:
        return np.asarray(values[0][at])
    rows = np.arange(len(values)).reshape(-1, *(1,) * (at.ndim - 1))
    return np.asarray(values[rows, at])


_UNIFORM = frozenset({int, float, bool, str, complex, type(None), np.ndarray, range})


def varies(value: Value) -> bool:
    """Return whether a value may differ from rank to rank."""
    kind = value.__class__
    if kind in _UNIFORM:
        return False
    if isinstance(value, Lanes | Stack):
        return True
    if kind is list or kind is tuple:
        return any(varies(item) for item in value)
    if kind is slice:
        return varies(value.start) or varies(value.stop) or varies(value.step)
    return kind is dict and any(varies(item) for item in value.values())


# -------------------------------------------------------------------------------------------------
# Many rows -> one of them, or some; the values of many rows -> one value.


def take_row(value: Value, row: int) -> Any:
    """Return what a value is on one row."""
    return _map(value, lambda each: each.row(row))


def take_rows(value: Value, rows: NDArray[np.int64]) -> Value:
    """Return what a value is on some rows."""
    return _map(value, lambda each: each.among(rows))


def copy_value(value: Value) -> Value:
    """Return a value that shares no memory with what names hold."""
    return _map(value, lambda each: each.copy())


def _map(value: Value, change: Callable[[Any], Any]) -> Any:
    kind = value.__class__
    if kind in _UNIFORM:
        return value
    if isinstance(value, Lanes | Stack):
        return change(value)
    if kind is list or kind is tuple:
        return kind(_map(item, change) for item in value)
    if kind is slice:
        return slice(*(_map(each, change) for each in (value.start, value.stop, value.step)))
    if kind is dict:
        return {key: _map(item, change) for key, item in value.items()}
    return value


_DTYPES: dict[type, Any] = {bool: np.bool_, int: np.int64, float: np.float64}


def together(values: Sequence[Any]) -> Value:
    """Return the values of all rows as one; Diverge where they are not alike in type or shape.

    >>> together([1, 2, 2]).values, together([5, 5, 5])
    (array([1, 2, 2]), 5)
    >>> together([[0, 1], [0, 2]])
    [0, Lanes(array([1, 2]))]
    """
    first = values[0]
    if all(value is first for value in values):
        return first
    kind = first.__class__
    if any(value.__class__ is not kind for value in values):
        raise Diverge(_labels(values))
    if kind in _DTYPES:
        return _numbers_together(values, kind)
    if isinstance(first, np.ndarray | np.generic):
        return _tensors_together(values)
    if kind is list:
        return _lists_together(values)
    if kind is not str and kind is not range:
        raise Diverge
    if any(value != first for value in values):
        raise Diverge(_labels(values))
    return first


def _tensors_together(values: Sequence[Any]) -> Stack:
    first = values[0]
    if any(value.shape != first.shape or value.dtype != first.dtype for value in values):
        raise Diverge(_labels(values))
    if any(map(is_hollow, values)):
        return Stack(hollow((len(values), *first.shape), first.dtype))
    if not all(map(_is_dense, values)):
        raise Diverge
    return Stack(np.stack(values))


def _lists_together(values: Sequence[list[Any]]) -> list[Any]:
    """Return a list of what the rows have in each place."""
    if any(len(value) != len(values[0]) for value in values):
        raise Diverge(_labels(values))
    if len(values[0]) * len(values) > ITEMS:
        raise Diverge(_number_keys(map(id, values)))
    return [together(column) for column in zip(*values, strict=True)]


def _numbers_together(values: Sequence[Any], kind: type) -> Value:
    if kind is float:
        return Lanes(np.asarray(values, np.float64))
    low, high = min(values), max(values)
    if low == high:
        return low
    if low < -EXACT or high > EXACT:
        raise Diverge
    return Lanes(np.asarray(values, _DTYPES[kind]), max(abs(low), abs(high)))


def _is_dense(value: Any) -> bool:
    """Whether a copy of a tensor has its elements in the order of its dimensions.

    A transposed matrix keeps its strides when NumPy copies it, and torch when it clones: a later
    sum may then add in another order. In a stack all tensors have their elements in order, so that
    others are kept apart.
    """
    if not isinstance(value, np.ndarray) or value.ndim < 2 or value.flags.c_contiguous:
        return True
    strides = [step for step, size in zip(value.strides, value.shape, strict=True) if size > 1]
    return strides == sorted(strides, reverse=True) and min(strides, default=1) > 0


def _labels(values: Iterable[Any]) -> NDArray[np.int64]:
    """Return which values are alike in type and shape."""
    return _number_keys(map(_likeness, values))


def _likeness(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.shape, value.dtype
    if isinstance(value, list):
        return list, len(value)
    return (value.__class__, value) if isinstance(value, str | range) else value.__class__


def _number_keys(keys: Iterable[Any]) -> NDArray[np.int64]:
    known: dict[Any, int] = {}
    return np.asarray([known.setdefault(key, len(known)) for key in keys], np.int64)


class MixedRows(Exception):
    """The values of some rows are of another type or shape than those of others.

    [1, 2, 3][rank:]        on ranks 0 and 1: lists of 3 and of 2 items are no column
    """


def join_parts(parts: Sequence[tuple[NDArray[np.int64] | None, Value]], size: int) -> Value:
    """Return as one the values of parts of `size` rows; raises MixedRows where they are not alike.

    >>> join_parts([(np.array([0, 2]), 7), (np.array([1]), 9)], 3).values
    array([7, 9, 7])

    Rows of None are all rows.
    """
    if len(parts) == 1:
        return parts[0][1]
    values = [value for _, value in parts]
    placed = [(rows, value) for rows, value in parts if rows is not None]
    first = values[0]
    tensors = [value for value in values if isinstance(value, Stack)]
    if tensors or isinstance(first, np.ndarray):
        return _tensors_joined(placed, tensors, size)
    if all(isinstance(value, Lanes) or value.__class__ in _DTYPES for value in values):
        return _numbers_joined(placed, size)
    if all(value.__class__ is list and len(value) == len(first) for value in values):
        return [
            join_parts([(rows, value[at]) for rows, value in parts], size)
            for at in range(len(first))
        ]
    if all(value.__class__ is first.__class__ and value == first for value in values):
        return first
    raise MixedRows


def _tensors_joined(
    parts: Sequence[tuple[NDArray[np.int64], Any]], stacks: Sequence[Stack], size: int
) -> Stack:
    first = parts[0][1]
    for _, value in parts:
        if not isinstance(value, Stack | np.ndarray):
            raise MixedRows
        same = value.shape == first.shape and value.dtype == first.dtype
        if not same or not (isinstance(value, Stack) or is_hollow(value) or _is_dense(value)):
            raise MixedRows
    return (stacks[0] if stacks else Stack(first[np.newaxis])).join(parts, size)


def _numbers_joined(parts: Sequence[tuple[NDArray[np.int64], Any]], size: int) -> Value:
    dtypes = {
        value.values.dtype.type if isinstance(value, Lanes) else _DTYPES[value.__class__]
        for _, value in parts
    }
    if len(dtypes) > 1:
        raise MixedRows
    whole = np.empty(size, dtypes.pop())
    for rows, value in parts:
        if value.__class__ is int and not -EXACT <= value <= EXACT:
            raise MixedRows
        whole[rows] = value.values if isinstance(value, Lanes) else value
    return Lanes(whole)


# -------------------------------------------------------------------------------------------------
# Functions that take one rank's values -> functions that take those of many.


def rowwise(function: Callable[..., Any], *given: Value, **named: Value) -> Value:
    """Call a function row by row, and stack what it gives where that is alike."""
    size = _rows_of((given, named))
    return together(
        [
            function(
                *(take_row(each, row) for each in given),
                **{name: take_row(each, row) for name, each in named.items()},
            )
            for row in range(size)
        ]
    )


def _rows_of(value: Value) -> int:
    """Return how many rows the first value has that varies; 0 where none does."""
    if isinstance(value, Lanes | Stack):
        return value.size
    parts: Iterable[Any] = ()
    if isinstance(value, list | tuple):
        parts = value
    elif isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
    elif isinstance(value, dict):
        parts = value.values()
    return next((size for size in map(_rows_of, parts) if size), 0)


def lift_functions(functions: Functions, most: int) -> dict[str, Callable[..., Any]]:
    """Return the language's functions for values of which some differ from rank to rank.

    An expression may make `most` elements at a time on all ranks together; where that is less than
    it may make on each, it raises ValueError, and has its value rank by rank.
    """
    made = {key: _lift(functions, key) for key in functions}
    begin = functions[BEGIN]
    made[BEGIN] = lambda elements, items: begin(min(elements, most), items)
    return made


def _lift(functions: Functions, key: str) -> Callable[..., Any]:
    plain, rule, named_too = functions[key], _RULES.get(key), key in _NAMED
    if rule is _binary:
        return _lift_operator(functions, key)

    def call(*given: Value, **named: Value) -> Value:
        if not any(map(varies, given)) and not (named and any(map(varies, named.values()))):
            return plain(*given, **named)
        if rule is not None and (named_too or not named):
            made = rule(functions, key, *given, **named)
            if made is not NotImplemented:
                return made
        if rule is None and not named and any(map(_lacks_values, given)):
            made = _elementwise(functions, key, *given)
            if made is not NotImplemented:
                return made
        return rowwise(plain, *given, **named)

    return call


def _lacks_values(value: Value) -> bool:
    return is_hollow(value.take() if isinstance(value, Stack) else value)


def _lift_operator(functions: Functions, symbol: str) -> Callable[[Any, Any], Any]:
    plain = functions[symbol]

    def call(first: Value, second: Value) -> Value:
        one, other = first.__class__, second.__class__
        if one is Lanes or other is Lanes:
            if (one is Lanes or one in _DTYPES) and (other is Lanes or other in _DTYPES):
                return _apply_to_numbers(symbol, first, second)
        elif not varies(first) and not varies(second):
            return plain(first, second)
        made = _binary(functions, symbol, first, second)
        return rowwise(plain, first, second) if made is NotImplemented else made

    return call


# -------------------------------------------------------------------------------------------------
# Rules: what a function gives on many ranks, where that is known without going row by row.
#
# A rule gives NotImplemented where it does not know. The language's own functions are called on
# stacked arrays where they work element by element: a stack gives what its tensors give one by one.
# What may round otherwise in another place of an array (exp, log, powers, complex products, sums of
# floats) has no rule.

#: floats -> the integers up to which all are among them
_WHOLE = {"float32": 2**24, "float64": EXACT}

_SEQUENCES = (list, tuple, range)


def _binary(functions: Functions, symbol: str, first: Value, second: Value) -> Value:
    """Arithmetic and comparisons of lists, and of tensors with others or with numbers."""
    if isinstance(first, _SEQUENCES) or isinstance(second, _SEQUENCES):
        lists = isinstance(first, list | range) and isinstance(second, list | range)
        repeats = {first.__class__, second.__class__} == {list, int}
        if (lists and symbol == "+") or (repeats and symbol == "*"):
            return functions[symbol](first, second)
        return NotImplemented
    return _elementwise(functions, symbol, first, second)


#: what rounds nowhere, or but once and correctly, in complex numbers too
_EXACT_COMPLEX = {"+", "-", "==", "!=", "where()"}


def _elementwise(functions: Functions, key: str, *operands: Value) -> Value:
    """Apply a function that works element by element, ranks apart.

        x [L, 4]  +  n [L]         n becomes [L, 1]
        x [L, 2, 4]  +  y [L, 4]   y becomes [L, 1, 4]
        x [L, 4]  +  2             stays 2

    so that NumPy's broadcasting never takes the dimension of the ranks for one of a tensor. The
    dtype of the result is decided by the function itself, as for one rank.
    """
    tensors = [each for each in operands if isinstance(each, Stack | np.ndarray)]
    if not tensors:
        return NotImplemented
    if key not in _EXACT_COMPLEX and any(each.dtype.kind == "c" for each in tensors):
        return NotImplemented
    depth = max(len(each.shape) for each in tensors)
    dtype = next((each.dtype for each in tensors if each.dtype != np.bool_), tensors[0].dtype)
    prepared = []
    for each in operands:
        made = _operand(functions, key, each, dtype, depth)
        if made is NotImplemented:
            return NotImplemented
        prepared.append(made)
    return Stack(np.asarray(functions[key](*prepared)))


def _operand(
    functions: Functions, key: str, value: Value, dtype: np.dtype[Any], depth: int
) -> Value:
    """Return an operand with `depth` dimensions behind that of the ranks."""
    if isinstance(value, Stack):
        found = value.take()
        missing = depth - len(value.shape)
        return found.reshape(len(found), *(1,) * missing, *value.shape) if missing else found
    if isinstance(value, np.ndarray):
        return value.reshape((1,) * (1 + depth - value.ndim) + value.shape)
    if isinstance(value, Lanes):
        fitting = _fit(functions, key, value, dtype)
        return NotImplemented if fitting is None else fitting.reshape(-1, *(1,) * depth)
    return value if value.__class__ in {bool, int, float, complex} else NotImplemented


def _fit(functions: Functions, key: str, lanes: Lanes, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return numbers as elements of `dtype`, where that makes no difference to the result."""
    if lanes.kind != "i":
        return None
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        fits = bool((lanes.values >= bounds.min).all() and (lanes.values <= bounds.max).all())
    else:
        fits = lanes.most <= _WHOLE.get(dtype.name, -1)
    if not fits or not _gives_same_dtype(functions[key], key, dtype):
        return None
    return lanes.values.astype(dtype)


@lru_cache(maxsize=256)
def _gives_same_dtype(function: Callable[..., Any], key: str, dtype: np.dtype[Any]) -> bool:
    """Return whether a number and a tensor of one element give the same dtype with a tensor.

    A number takes the dtype of the tensor (`x + 1` stays int32), two tensors that of both. A column
    of numbers is a tensor to NumPy, and so it may take the place of a number only where that is no
    difference. It is tried out once for each function and dtype.
    """
    one = np.ones(1, dtype)
    condition = (np.ones(1, np.bool_),) if key == "where()" else ()
    made = [function(*condition, one, each) for each in (1, one)]
    return bool(made[0].dtype == made[1].dtype)


def _where(functions: Functions, key: str, condition: Value, first: Value, second: Value) -> Value:
    """`where`; the condition has no part in the dtype."""
    if not isinstance(first, Stack | np.ndarray) and not isinstance(second, Stack | np.ndarray):
        return NotImplemented
    if isinstance(condition, Lanes):
        condition = Stack(condition.values != 0)
    elif isinstance(condition, Stack | np.ndarray) and condition.dtype != np.bool_:
        return NotImplemented
    return _elementwise(functions, key, condition, first, second)


def _extreme_elements(functions: Functions, key: str, first: Value, second: Value) -> Value:
    """`minimum` and `maximum`; between zeros of two signs the place in an array may decide.

    NumPy computes the bulk of an array by vector instructions and the rest one by one, and the two
    may choose another one of 0.0 and -0.0, or another NaN.
    """
    if not any(isinstance(each, Stack | np.ndarray) for each in (first, second)):
        return NotImplemented
    made = _elementwise(functions, key, first, second)
    if made is NotImplemented or made.dtype.kind in "iub" or is_hollow(made.take()):
        return made
    return NotImplemented if (made.take() == 0).any() or np.isnan(made.take()).any() else made


def _unary(functions: Functions, key: str, value: Value) -> Value:
    """A sign, or `~`."""
    if isinstance(value, Lanes):
        if key == "~":
            return Lanes(~value.values) if value.kind == "i" else NotImplemented
        return -value if key == "u-" else +value
    return Stack(functions[key](value.take())) if isinstance(value, Stack) else NotImplemented


def _absolute(functions: Functions, key: str, value: Value) -> Value:
    if isinstance(value, Lanes):
        values = _integers(value.values)
        return Lanes(np.abs(values), value.most if value.kind != "f" else None)
    return _elementwise(functions, key, value)


def _chain(functions: Functions, _key: str, symbols: tuple[str, ...], *values: Value) -> Value:
    """A chain of comparisons (:class:`torch_scenarios.expressions.operators.Comparisons`)."""
    result: Value = True
    for symbol, first, second in zip(symbols, values, values[1:], strict=False):
        result = _lift(functions, symbol)(first, second)
        if not result:
            break
    return result


def _test_membership(functions: Functions, key: str, item: Value, within: Value) -> Value:
    """`item in within`: a list or range of plain integers.

    A range is tested by its ends and its step, and never written out: `rank in range(0, 4096, 8)`.
    """
    if not isinstance(item, Lanes) or not isinstance(within, list | range):
        return NotImplemented
    if isinstance(within, range):
        if item.kind == "f" or max(map(abs, (within.start, within.stop, within.step))) > EXACT:
            return NotImplemented
        values = _integers(item.values)
        low, high = sorted((within[0], within[-1])) if within else (1, 0)
        found = (values >= low) & (values <= high) & ((values - within.start) % within.step == 0)
    else:
        if any(each.__class__ not in {int, bool} or abs(each) > EXACT for each in within):
            return NotImplemented
        functions[EACH](within, 1, False)
        found = np.isin(item.values, np.asarray(list(within), np.int64))
    return Lanes(found if key == "in" else ~found, 1)


# ---------------------------------------------------------------------- functions of numbers


def _convert(_functions: Functions, key: str, value: Value) -> Value:
    """`int`, `float` and `bool` of a number, or of a tensor's only element."""
    if isinstance(value, Stack) and prod(value.shape) == 1 and value.dtype.kind in "biuf":
        values = value.take().reshape(-1)
        if is_hollow(values):
            raise ValueNeeded
    elif isinstance(value, Lanes):
        values = value.values
    else:
        return NotImplemented
    if key == "bool()":
        return Lanes(values != 0, 1)
    if key == "float()":
        return Lanes(values.astype(np.float64))
    if values.dtype.kind == "f":
        values = np.trunc(values.astype(np.float64))
        if not np.isfinite(values).all():
            return NotImplemented
    if values.dtype.kind != "b" and (values.min() < -EXACT or values.max() > EXACT):
        return NotImplemented
    return Lanes(values.astype(np.int64))


def _count_bits(_functions: Functions, key: str, value: Value) -> Value:
    """`bit_length` and `bit_count` of an integer."""
    if not isinstance(value, Lanes) or value.kind != "i":
        return NotImplemented
    size = np.abs(value.values)
    if key == "bit_length()":
        # frexp(n) is (m, e) with n = m * 2**e and 0.5 <= m < 1: exact up to 2**53
        return Lanes(np.frexp(size.astype(np.float64))[1].astype(np.int64), _BITS)
    counts = sum((size >> at) & 1 for at in range(EXACT.bit_length()))
    return Lanes(np.asarray(counts), _BITS)


_EXTREMES: dict[str, Callable[[Any, Any], Any]] = {
    "min()": np.minimum,
    "max()": np.maximum,
    "minimum()": np.minimum,
    "maximum()": np.maximum,
}


def _extreme(functions: Functions, key: str, first: Value, *more: Value) -> Value:
    """`min` and `max` of integers, and of lists of integers or of tensors."""
    items = [first, *more] if more else first
    if not isinstance(items, list):
        return _reduce_integers(functions, key, items)
    if items and not more and all(isinstance(each, Stack | np.ndarray) for each in items):
        name = {"min()": "minimum()", "max()": "maximum()"}[key]
        made = items[0] if len(items) > 1 else NotImplemented
        for each in items[1:]:
            made = _lift(functions, name)(made, each)
        return made
    if not items or not all(_is_integer(each) for each in items):
        return NotImplemented
    functions[EACH](range(len(items)), 1, False)
    parts = [each.values if isinstance(each, Lanes) else each for each in items]
    return Lanes(np.asarray(reduce(_EXTREMES[key], parts)))


def _is_integer(value: Value) -> bool:
    if isinstance(value, Lanes):
        return value.kind == "i"
    return value.__class__ is int and -EXACT <= value <= EXACT


def _choose_extreme(functions: Functions, key: str, first: Value, second: Value) -> Value:
    """`minimum` and `maximum` of numbers or tensors."""
    if _is_integer(first) and _is_integer(second):
        return _extreme(functions, key, first, second)
    return _extreme_elements(functions, key, first, second)


def _combine(functions: Functions, key: str, items: Value) -> Value:
    """`sum`, `prod` and `mean` of a list, element by element where it is one of tensors.

    The items of a list are added in order on each rank, which stacks do as well. The elements of
    one tensor are added pairwise by NumPy, in an order that depends on the layout: that has no
    rule.
    """
    if not isinstance(items, list):
        return _reduce_integers(functions, key, items) if key != "mean()" else NotImplemented
    if all(isinstance(each, Stack | np.ndarray) for each in items):
        size = _rows_of(items)
        if len({each.shape for each in items}) > 1 or any(_is_complex(each) for each in items):
            return NotImplemented
        wide = [
            each.take() if isinstance(each, Stack) else np.broadcast_to(each, (size, *each.shape))
            for each in items
        ]
        return Stack(np.asarray(functions[key](wide)))
    if key == "mean()" or not all(isinstance(each, Lanes) or _is_plain(each) for each in items):
        return NotImplemented
    functions[EACH](range(len(items)), 1, False)
    symbol, empty = ("+", 0) if key == "sum()" else ("*", 1)
    return reduce(ARITHMETIC[symbol], items, empty)


def _is_plain(value: Value) -> bool:
    return value.__class__ in _DTYPES


def _is_complex(value: Value) -> bool:
    return bool(value.dtype.kind == "c")


def _reduce_integers(functions: Functions, key: str, value: Value) -> Value:
    """`sum`, `prod`, `min`, `max` of a tensor of integers: any order gives the same."""
    if not isinstance(value, Stack) or value.dtype.kind not in "iub" or 0 in value.shape:
        return NotImplemented
    axes = list(range(1, len(value.shape) + 1))
    return Stack(np.asarray(functions[key](value.take(), axis=axes))) if axes else NotImplemented


# ---------------------------------------------------------------------- functions that make tensors


def _fill(
    functions: Functions, _key: str, shape: Value, fill_value: Value, dtype: Value = None
) -> Value:
    """`full` with a number for each rank."""
    if varies(shape) or varies(dtype):
        return NotImplemented
    sample = functions["zeros()"](shape, "float32" if dtype is None else dtype)
    kind = sample.dtype.kind
    if isinstance(fill_value, Stack) and prod(fill_value.shape) == 1:
        numbers = fill_value.take().reshape(-1)
        if numbers.dtype != sample.dtype:
            return NotImplemented
    elif isinstance(fill_value, Lanes):
        numbers = fill_value.values
        exact = fill_value.kind == "i" and kind in "iu"
        if exact:
            bounds = np.iinfo(sample.dtype)
            exact = bool((numbers >= bounds.min).all() and (numbers <= bounds.max).all())
        if not exact and not (kind == "f" and sample.dtype.itemsize > 2):
            return NotImplemented
        with np.errstate(all="ignore"):
            numbers = numbers.astype(sample.dtype)
    else:
        return NotImplemented
    functions["zeros()"]([len(numbers), *sample.shape], "bool")  # charges what is made
    wide = numbers.reshape(-1, *(1,) * sample.ndim)
    return Stack(np.broadcast_to(wide, (len(wide), *sample.shape)))


def _cast(functions: Functions, key: str, value: Value, dtype: Value) -> Value:
    """`astype`; what does not fit an integer is cut off by the processor, which may differ.

    A float beyond int32, or a NaN, becomes another integer by vector instructions than alone. Where
    one is among the values, the ranks are computed one by one.
    """
    if not isinstance(value, Stack) or varies(dtype):
        return NotImplemented
    values = value.take()
    if is_hollow(values):
        return Stack(np.asarray(functions[key](values, dtype)))
    kind = functions["zeros()"](0, dtype).dtype
    if kind.kind in "iu" and values.dtype.kind not in "iub":
        wide = values.astype(np.float64) if values.dtype.kind != "c" else values
        bounds = np.iinfo(kind)
        if wide.dtype.kind == "c" or not ((wide > bounds.min) & (wide < bounds.max)).all():
            return NotImplemented
    return Stack(np.asarray(functions[key](values, dtype)))


def _stack(functions: Functions, key: str, arrays: Value, axis: Value = 0) -> Value:
    """`concat` and `stack` of tensors."""
    if not isinstance(arrays, list) or axis.__class__ is not int or axis < 0:
        return NotImplemented
    size = _rows_of(arrays)
    wide = []
    for each in arrays:
        if isinstance(each, Stack):
            wide.append(each.take())
        elif isinstance(each, np.ndarray):
            wide.append(np.broadcast_to(each, (size, *each.shape)))
        else:
            return NotImplemented
    return Stack(np.asarray(functions[key](wide, axis + 1)))


def _reshape(_functions: Functions, _key: str, value: Value, shape: Value) -> Value:
    sizes = tuple(shape) if isinstance(shape, list | range) else (shape,)
    if not isinstance(value, Stack) or any(each.__class__ is not int or each < 0 for each in sizes):
        return NotImplemented
    return value.reshape(sizes) if prod(sizes) == prod(value.shape) else NotImplemented


def _measure(functions: Functions, key: str, value: Value) -> Value:
    """`len`, `shape`, `numel`: the same on all ranks."""
    if isinstance(value, Stack):
        return functions[key](np.broadcast_to(np.zeros(()), value.shape))
    return functions[key](value) if key == "len()" and isinstance(value, list) else NotImplemented


# ---------------------------------------------------------------------- parts


def _each(functions: Functions, key: str, iterable: Value, weight: int, unpacks: bool) -> Value:
    """What a comprehension goes over: the items of a list, a tensor's parts."""
    if isinstance(iterable, Stack):
        if not iterable.shape:
            return NotImplemented
        count = iterable.shape[0]
        functions[key](range(count), weight, False)
        items = [iterable.index((at,)) for at in range(count)]
    elif isinstance(iterable, list):
        functions[key](iterable, weight, False)
        items = iterable
    else:
        return NotImplemented
    again = _lift(functions, key)
    return [again(item, 1, False) for item in items] if unpacks else items


def _slice(_functions: Functions, _key: str, start: Value, stop: Value, step: Value) -> slice:
    """`start:stop:step`, of which a bound differs from rank to rank."""
    return slice(start, stop, step)


def _part(functions: Functions, key: str, value: Value, index: Value) -> Value:
    """`value[index]`: of a tensor a part of it, of a list an item.

    x[0:2]        the same places on every rank: one view of the stack
    x[rank]       a place for each rank, gathered along dimension 0
    x[rank:rank + 2]     as many on each rank: gathered, too
    x[rank:]      lists of places of several lengths: Diverge
    """
    if isinstance(value, list) and not varies(index):
        return functions[key](value, index)
    if isinstance(index, Stack) and not index.shape and index.dtype.kind in "iu":
        index = _convert(functions, "int()", index)
    if isinstance(value, list | range):
        return _item(value, index)
    if isinstance(value, np.ndarray):
        return _take_part(Stack(value[np.newaxis]), index)
    if not isinstance(value, Stack):
        return NotImplemented
    if _is_plain_index(index):
        return value.index(index if isinstance(index, tuple) else (index,))
    made = _take_part(value, index)
    if made is not NotImplemented or _copies(index):
        return made
    found = value.own_parts(lambda places, row: functions[key](places, take_row(index, row)))
    return NotImplemented if found is None else found


def _is_plain_index(index: Value) -> bool:
    if isinstance(index, tuple):
        return all(_is_plain_index(each) for each in index)
    if index.__class__ is slice:
        forwards = index.step is None or (index.step.__class__ is int and index.step > 0)
        bounds = (index.start, index.stop)
        return forwards and all(each is None or each.__class__ is int for each in bounds)
    return index is None or index.__class__ is int


def _copies(index: Value) -> bool:
    """Whether an index takes a copy: a list or a mask, not integers and slices."""
    if isinstance(index, tuple):
        return any(map(_copies, index))
    return not isinstance(index, Lanes | slice | int | None)


def _take_part(value: Stack, index: Value) -> Value:
    """Return what each rank's own integer, or slice, takes along dimension 0."""
    if not value.shape:
        return NotImplemented
    length = value.shape[0]
    if isinstance(index, Lanes) and index.kind == "i":
        return value.gather(_wrap_indexes(index, length))
    if index.__class__ is slice and index.step is None:
        at = _run(index, length, real=not is_hollow(value.take()))
        return NotImplemented if at is None else value.gather(at)
    return NotImplemented


def _wrap_indexes(index: Lanes, length: int) -> NDArray[np.int64]:
    """Return indexes counted from 0.

    Raises IndexError where one is out of bounds, on whichever rank.
    """
    values = index.values
    low, high = int(values.min()), int(values.max())
    if low < -length or high >= length:
        message = "an index is out of bounds"
        raise IndexError(message)
    return np.where(values < 0, values + length, values) if low < 0 else values


def _run(index: slice, length: int, *, real: bool) -> NDArray[np.int64] | None:
    """Return the places `[L, count]` of a slice; Diverge where it is not as long everywhere.

    Places that are not `real` are hollow: for tensors of which no element is looked at.
    """
    first, last = _bound(index.start, 0, length), _bound(index.stop, length, length)
    if first is None or last is None:
        return None
    counts = np.maximum(last - first, 0)
    count = int(counts.flat[0])
    if (counts != count).any():
        raise Diverge(counts)
    if not real:
        return hollow((counts.size, count), np.int64)
    starts = np.broadcast_to(first, counts.shape).reshape(-1, 1)
    return starts if count == 1 else starts + np.arange(count)


def _bound(bound: Value, default: int, length: int) -> Any:
    """Return a bound of a slice as Python reads it.

    Negative ones from the end, all cut off at the ends.
    """
    if bound is None:
        return np.int64(default)
    if bound.__class__ is int:
        return np.int64(slice(bound, None).indices(length)[0])
    if not isinstance(bound, Lanes) or bound.kind != "i":
        return None
    values = bound.values
    low, high = int(values.min()), int(values.max())
    if low < 0:
        values = np.where(values < 0, values + length, values)
    return np.clip(values, 0, length) if low < 0 or high > length else values


def _item(items: list[Any] | range, index: Value) -> Value:
    """Return each rank's own item of a list of plain integers."""
    if not isinstance(index, Lanes) or index.kind != "i" or not items:
        return NotImplemented
    if any(each.__class__ is not int or abs(each) > EXACT for each in items):
        return NotImplemented
    return Lanes(np.asarray(list(items), np.int64)[_wrap_indexes(index, len(items))])


_RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys((*ARITHMETIC, *COMPARED), _binary),
    **dict.fromkeys(("in", "not in"), _test_membership),
    **dict.fromkeys(("u+", "u-", "~"), _unary),
    **dict.fromkeys(("int()", "float()", "bool()"), _convert),
    **dict.fromkeys(("min()", "max()"), _extreme),
    **dict.fromkeys(("minimum()", "maximum()"), _choose_extreme),
    **dict.fromkeys(("sum()", "prod()", "mean()"), _combine),
    **dict.fromkeys(("concat()", "stack()"), _stack),
    **dict.fromkeys(("len()", "shape()", "numel()"), _measure),
    CHAIN: _chain,
    EACH: _each,
    INDEX: _part,
    SLICE: _slice,
    **dict.fromkeys(("floor()", "ceil()", "round()", "sign()", "square()"), _elementwise),
    **dict.fromkeys(("sqrt()", "isfinite()", "isnan()"), _elementwise),
    **dict.fromkeys(("bit_length()", "bit_count()"), _count_bits),
    "abs()": _absolute,
    "astype()": _cast,
    "full()": _fill,
    "reshape()": _reshape,
    "where()": _where,
}

#: the rules that take arguments by name
_NAMED = {"concat()", "stack()", "full()"}


# -------------------------------------------------------------------------------------------------
# The same code on all rows, on those that agree, on one alone.


# How ranks that disagree are parted.
#
#     [x[i] for i in range(rank % 3)]        on ranks 0 to 8
#
# `range` needs one size, and the ranks have three: Diverge with the labels [0, 1, 2, 0, 1, 2, ...].
# The expression is run again for the ranks 0, 3 and 6, then for 1, 4 and 7, then for the rest:
# three runs in place of nine. Ranks that share a label may part again further on, so that it is
# recursive.
#
# Where nearly every rank has a label of its own, parting gains nothing: they are computed one by
# one, in a process of the walk. There each error has its own words and its own rank, which is why
# an error among many ranks leads there as well: the message is then that of the walk, no matter
# which of them is wrong.
def split(
    count: int,
    many: Callable[[NDArray[np.int64] | None], T],
    one: Callable[[int], T],
    rows: NDArray[np.int64] | None = None,
) -> Iterator[tuple[NDArray[np.int64] | None, T]]:
    """Yield values and the rows whose value they are; None stands for all of `count` rows.

    `many` computes rows together, `one` a row alone. What rows cannot compute together, be it only
    because one of them raises, they compute apart; what `one` raises passes through.
    """
    here = np.arange(count) if rows is None else rows
    labels = None
    try:
        made = many(rows)
    except Diverge as parted:
        labels = parted.labels
    except BoundError:
        raise
    except (ScenarioError, *CANNOT_COMPUTE):
        pass  # who raises, and what, each says alone
    else:
        yield rows, made
        return
    found = [] if labels is None else np.unique(labels).tolist()
    if not 1 < len(found) <= max(len(here) // 2, 2):
        for row in here.tolist():
            yield np.asarray([row]), one(row)
        return
    for label in found:
        yield from split(count, many, one, here[labels == label])


# -------------------------------------------------------------------------------------------------
# Forms on many ranks at once: the evaluator of one rank, its rank and its arrays in lanes.


class LaneArrays:
    """The array library of many ranks: another one, on tensors of which some are stacked.

    A function of the language is lifted once: with arguments that are the same on every rank it is
    the plain one, called once; else one call on stacks; and where neither is known to mean the
    same, row by row. An expression does not know which of the three it is.
    """

    def __init__(self, arrays: Arrays, most: int) -> None:
        """Share another library's functions; `most` as in :func:`lift_functions`."""
        self._arrays = arrays
        self._plain = arrays.functions()
        self._functions = lift_functions(self._plain, most)

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """Return the functions of the language under `name()`."""
        return self._functions

    def array(self, data: Value, dtype: str) -> Value:
        """Make an array, or one for each rank."""
        if not varies(data):
            return self._arrays.array(data, dtype)
        made = NotImplemented
        if isinstance(data, Lanes):
            made = _fill(self._plain, "full()", [], data, dtype)
        elif isinstance(data, Stack) and data.dtype.kind != "c":
            made = _cast(self._plain, "astype()", data, dtype)
        return rowwise(self._arrays.array, data, dtype) if made is NotImplemented else made

    def copy(self, value: Value) -> Value:
        """Return what shares no memory with `value`."""
        return copy_value(value) if varies(value) else self._arrays.copy(value)

    def is_array(self, value: object) -> bool:
        """Return whether `value` is an array, or one for each rank."""
        return isinstance(value, Stack) or self._arrays.is_array(value)

    def dtype(self, value: Value) -> str:
        """Return the name of the dtype of an array."""
        return self._arrays.dtype(np.empty(0, value.dtype) if isinstance(value, Stack) else value)

    def store(self, part: Value, value: Value) -> None:
        """Raise Diverge: what is held belongs to each rank, and an expression stores nothing."""
        raise Diverge

    def shares(self, part: Value, array: Value) -> bool:
        """Raise Diverge, as :meth:`store` does."""
        raise Diverge

    def reshape(self, value: Value, shape: tuple[int, ...]) -> Value:
        """Return `value` in another shape; a single element fills the shape."""
        if not isinstance(value, Stack):
            return self._arrays.reshape(value, shape)
        made = _reshape(self._plain, "reshape()", value, list(shape))
        return rowwise(self._arrays.reshape, value, shape) if made is NotImplemented else made


class LaneEvaluator(TypedEvaluator):
    """Evaluates forms on many ranks at once; raises Diverge where they cannot go together.

    The compiled code is that of one rank. Only its scope is another: names are bound to lanes and
    stacks, operators to lifted ones. So there is no second compiler that could read an expression
    in another way.
    """

    def __init__(self, arrays: LaneArrays) -> None:
        """Begin on no rank: the caller binds `rank` and the names in the scope."""
        super().__init__(0, arrays)

    def selects(self, selector: Selector) -> Any:
        """Return on which ranks a selector selects: a bool, or one for each."""
        value, ranks = self.evaluate(selector.form), self.scope["rank"]
        if isinstance(value, Stack) and not value.shape:
            value = _convert({}, "bool()" if value.dtype.kind == "b" else "int()", value)
        if isinstance(value, Lanes) and value.kind != "f":
            return value if value.kind == "b" else value == ranks
        if value.__class__ is bool:
            return value
        if value.__class__ is int:
            return ranks == value
        if not isinstance(value, list | range) or varies(value):
            raise Diverge
        found = _test_membership(self.scope, "in", ranks, value)
        if found is NotImplemented:
            raise Diverge
        return found

    def _item(self, value: Any) -> Any:
        if isinstance(value, Stack):
            return rowwise(lambda each: each.item(), value)
        return super()._item(value)
