"""One value for each of many ranks, and the operators and functions on them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, prod
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from runner.expressions.signatures import BINARY, COMPARISONS
from runner.expressions.values import (
    Expression,
    Form,
    ListForm,
    PerRank,
    Record,
    Typed,
    names_of,
)
from runner.model.plan import Plan
from runner.model.scenario import Expectation

if TYPE_CHECKING:
    from runner.reference.vector.state import Memory


# -------------------------------------------------------------------------------------------------
# Arguments of a call of many ranks -> of one of them, or of some.


def own(value: Any, row: int) -> Any:
    """Return what an argument is in one row, as plain Python."""
    if isinstance(value, np.ndarray):
        return value[row].item()
    if isinstance(value, list):
        return [own(item, row) for item in value]
    if isinstance(value, dict):
        return {key: own(item, row) for key, item in value.items()}
    return value


def some(value: Any, rows: NDArray[np.int64]) -> Any:
    """Return what an argument is in some rows."""
    if isinstance(value, np.ndarray):
        return value[rows]
    if isinstance(value, list):
        return [some(item, rows) for item in value]
    if isinstance(value, dict):
        return {key: some(item, rows) for key, item in value.items()}
    return value


# -------------------------------------------------------------------------------------------------
# What can be told of a form from its text: the names it reads, and whether it asks for groups.


def calls_of(form: Form | None) -> bool:
    """Return whether a form may ask for a group."""
    match form:
        case Expression():
            return bool(form.calls & {"group_rank", "group_size", "group_ranks"})
        case ListForm():
            return any(map(calls_of, form.items))
        case Record():
            beside = [over for _, over in form.loops]
            beside += [form.ranks.form] if form.ranks is not None else []
            return any(map(calls_of, (*form.fields.values(), *beside)))
        case PerRank():
            parts = [
                calls_of(selector.form) or calls_of(value) for selector, value in form.branches
            ]
            return any(parts) or calls_of(form.otherwise)
        case Typed():
            return any(map(calls_of, (form.value, form.dtype, form.shape)))
        case _:
            return False


def looked_at(expect: Expectation) -> frozenset[str]:
    """Return every name that an expectation may read."""
    bounds: list[Any] = [expect.elapsed]
    if isinstance(expect.elapsed, PerRank):
        bounds = [each for _, each in expect.elapsed.branches] + [expect.elapsed.otherwise]
        found = [names_of(selector.form) for selector, _ in expect.elapsed.branches]
    else:
        found = []
    for bound in bounds:
        if bound is not None:
            found += [names_of(bound.min_s), names_of(bound.max_s)]
    for value in expect.values:
        found += [value.key.names, value.key.before, names_of(value.wanted)]
    return frozenset().union(*found)


# -------------------------------------------------------------------------------------------------
# What a form is worth on many ranks at once: a number for each, a tensor for each, or one for all.
#
# A value that is the same on every rank is itself: a number, a list, an array. What differs from
# rank to rank is one of the three classes here. `L` is the number of ranks that are active, `W` of
# all.

#: whatever a form is worth
Value: TypeAlias = Any

#: bytes of what one name holds on all ranks, or of what one expression makes: what is larger gains
#: nothing from being stacked
LARGEST = 2**28

#: beyond this an int64, or a double, does not calculate as Python's integers do
EXACT = 2**53


class Beyond(Exception):  # noqa: N818 -- no error: the other engine takes the program
    """The program is none for this engine; the text says why."""


def leave(why: str) -> NoReturn:
    """Leave the program to the other engine."""
    raise Beyond(why)


@dataclass(slots=True, eq=False)
class Lanes:
    """A plain number on each rank: bool, int64 or float64 `[L]`, and bounds of all of them."""

    values: NDArray[Any]
    low: float = -inf
    high: float = inf

    @property
    def kind(self) -> str:
        """`b`, `i` or `f`: bool, int, float."""
        return str(self.values.dtype.kind)


@dataclass(slots=True, eq=False)
class Stack:
    """A tensor on each rank, all of one shape and dtype: `[L, *shape]`, shared with nobody."""

    values: NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one rank's tensor."""
        return self.values.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of every rank's tensor."""
        return self.values.dtype

    def take(self, rows: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """Return the elements `[L, *shape]`, or a copy of those of some rows."""
        return self.values if rows is None else self.values[rows]


@dataclass(slots=True, eq=False)
class Column:
    """What a name holds: `[W, *shape]`, and on which ranks it holds anything.

    `shared` tells that somebody keeps the array, so that a part of it is changed in a copy only.
    """

    name: str
    values: NDArray[Any]
    held: NDArray[np.bool_]
    whole: bool
    shared: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one rank's tensor."""
        return self.values.shape[1:]

    def changing(self) -> NDArray[Any]:
        """Return the array for a change in place."""
        if self.shared:
            self.values, self.shared = self.values.copy(), False
        return self.values


@dataclass(slots=True, eq=False)
class Active:
    """Ranks that take a step together, in ascending order."""

    ranks: NDArray[np.int64]
    world_size: int
    everyone: bool = field(init=False)
    #: what picks these ranks out of the rows of a column
    index: Any = field(init=False)
    rank: Lanes = field(init=False)

    def __post_init__(self) -> None:
        """Note whether they are all."""
        self.everyone = len(self.ranks) == self.world_size
        self.index = slice(None) if self.everyone else self.ranks
        self.rank = Lanes(self.ranks, 0, self.world_size - 1)

    @property
    def size(self) -> int:
        """How many they are."""
        return len(self.ranks)

    def among(self, mask: NDArray[np.bool_]) -> Active:
        """Return those for which `mask` `[L]` is true; the same object where all are."""
        if mask.all():
            return self
        return Active(self.ranks[mask], self.world_size)

    def rows(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows in which `ranks`, all of them active, stand."""
        return ranks if self.everyone else np.searchsorted(self.ranks, ranks)

    def find(self, ranks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return a row for each of `ranks`, and whether that rank is there at all."""
        if self.everyone:
            return ranks, np.ones(len(ranks), np.bool_)
        rows = np.searchsorted(self.ranks, ranks)
        rows[rows == len(self.ranks)] = 0
        return rows, self.ranks[rows] == ranks


@dataclass(slots=True, eq=False)
class View:
    """All or a part of what a name holds, in its own storage.

    `offsets` `[L or 1, *shape]` say which elements of a rank's tensor, counted flat; None is all.
    `guard` is asked before an expression reads it, where work writes a part of the tensor.
    """

    column: Column
    active: Active
    offsets: NDArray[np.int64] | None = None
    guard: Callable[[View], None] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one rank's part."""
        return self.column.shape if self.offsets is None else self.offsets.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of every rank's tensor."""
        return self.column.values.dtype

    @property
    def whole(self) -> bool:
        """Whether it is all of what the name holds."""
        return prod(self.shape) >= prod(self.column.shape)

    def places(self) -> NDArray[np.int64]:
        """Return the offsets, of the whole as well."""
        return counted(self.column.shape) if self.offsets is None else self.offsets

    def part(self, offsets: NDArray[np.int64]) -> View:
        """Return a part of it, by the offsets in the whole tensor."""
        return View(self.column, self.active, offsets, self.guard)

    def take(self, rows: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """Return the elements `[L, *shape]`, or a copy of those of some rows.

        All elements of all ranks are the storage itself.
        """
        if self.guard is not None:
            self.guard(self)
        values = self.column.values
        if self.offsets is None:
            part: NDArray[Any] = values[
                self.active.index if rows is None else self.active.ranks[rows]
            ]
            return part
        offsets = self.offsets
        if rows is not None and len(offsets) > 1:
            offsets = offsets[rows]
        return np.asarray(values.reshape(len(values), -1)[self._at(offsets, rows)])

    def put(self, rows: NDArray[np.int64] | None, found: NDArray[Any]) -> None:
        """Store elements `[rows, *shape]` on the ranks of these rows; None: on all."""
        values = self.column.changing()
        if self.offsets is None:
            values[self.active.index if rows is None else self.active.ranks[rows]] = found
            return
        offsets = self.offsets
        if rows is not None and len(offsets) > 1:
            offsets = offsets[rows]
        values.reshape(len(values), -1)[self._at(offsets, rows)] = found

    def _at(self, offsets: NDArray[np.int64], rows: NDArray[np.int64] | None = None) -> Any:
        ranks = self.active.ranks if rows is None else self.active.ranks[rows]
        return ranks.reshape(-1, *(1,) * (offsets.ndim - 1)), offsets


@lru_cache(maxsize=64)
def counted(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the flat offsets of a tensor's elements, `[1, *shape]`."""
    return np.arange(prod(shape), dtype=np.int64).reshape(1, *shape)


class Named:
    """What `let` has named in one list of steps, in one turn of its loops: a number on each rank.

    Lists, and numbers of several types, are kept one by one.
    """

    def __init__(self, world_size: int) -> None:
        """Begin on no rank."""
        self._held = np.zeros(world_size, np.bool_)
        self._values: NDArray[Any] | None = None
        self._one: Any = None
        #: whether one value stands for all ranks
        self._same = False

    def assign(self, active: Active, value: Value) -> None:
        """Let the name stand for a value: Lanes, one for all of these ranks, or a list of each."""
        self._held[active.index] = True
        if active.everyone and not isinstance(value, (Lanes, Each)):
            self._same, self._one, self._values = True, value, None
            return
        if self._same:
            self._values = _filled(len(self._held), self._one)
            self._same = False
        if isinstance(value, Lanes):
            found = value.values
        elif isinstance(value, Each):
            found = np.empty(len(value.values), object)
            found[:] = value.values
        else:
            found = _filled(active.size, value)
        if self._values is None:
            self._values = np.zeros(len(self._held), found.dtype)
        elif self._values.dtype != found.dtype:
            self._values = _objects(self._values)
        if self._values.dtype == object and found.dtype != object:
            found = _objects(found)
        self._values[active.index] = found

    def on(self, active: Active) -> Value:
        """Return the value on these ranks. Raises Beyond where one lacks it, or they differ."""
        if not self._held[active.index].all():
            leave("a number that some rank has not named")
        if self._same:
            return self._one
        assert self._values is not None
        found = self._values[active.index]
        if found.dtype == object:
            first = found[0]
            if any(each.__class__ is not first.__class__ or each != first for each in found):
                leave("lists that differ")
            return first
        if found.dtype.kind == "f":
            return Lanes(found)
        low, high = (int(found.min()), int(found.max())) if len(found) else (0, 0)
        return Lanes(found, low, high)

    def of(self, rank: int) -> Any:
        """Return the value on one rank; None where it has none."""
        if not self._held[rank]:
            return None
        if self._same:
            return self._one
        assert self._values is not None
        found = self._values[rank]
        return found.item() if isinstance(found, np.generic) else found


@dataclass(slots=True, eq=False)
class Each:
    """Values of any type, one for each rank that is active."""

    values: list[Any]


def _filled(size: int, value: Any) -> NDArray[Any]:
    kind = {bool: np.bool_, int: np.int64, float: np.float64}.get(value.__class__)
    if kind is None or (kind is np.int64 and not -EXACT <= value <= EXACT):
        found = np.empty(size, object)
        found[:] = [value] * size
        return found
    return np.full(size, value, kind)


def _objects(values: NDArray[Any]) -> NDArray[Any]:
    found = np.empty(len(values), object)
    found[:] = values.tolist()
    return found


def varies(value: Value) -> bool:
    """Return whether a value may differ from rank to rank."""
    if isinstance(value, (Lanes, Stack, View)):
        return True
    return isinstance(value, list) and any(varies(item) for item in value)


# -------------------------------------------------------------------------------------------------
# What operators make of numbers that differ from rank to rank.
#
# They are NumPy's on int64 and float64, within bounds in which those are Python's own.

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


def number(value: Value) -> tuple[Any, float, float, str]:
    """Return a number, or one for each rank, for NumPy: its values, bounds and kind."""
    if isinstance(value, Lanes):
        if value.kind == "b":
            return value.values.astype(np.int64), 0, 1, "i"
        return value.values, value.low, value.high, value.kind
    if value.__class__ in {bool, int}:
        return int(value), int(value), int(value), "i"
    if value.__class__ is float:
        return value, -inf, inf, "f"
    return leave(f"a number and {type(value).__name__}")


def of_lanes(symbol: str, first: Value, second: Value) -> Lanes:
    """Apply an arithmetic operator to numbers."""
    one, low1, high1, kind1 = number(first)
    two, low2, high2, kind2 = number(second)
    apply = ARITHMETIC.get(symbol)
    if apply is None:
        leave(symbol)
    if symbol == "/":
        if np.any(np.equal(two, 0)):
            leave("a division by zero")
        return Lanes(np.true_divide(one, two))
    if "f" in {kind1, kind2}:
        if symbol not in {"+", "-", "*"}:
            leave(symbol)
        with np.errstate(all="ignore"):
            return Lanes(
                np.asarray(apply(np.asarray(one, np.float64), np.asarray(two, np.float64)))
            )
    low, high = _BOUNDS[symbol](low1, high1, low2, high2)
    if low < -EXACT or high > EXACT:
        leave("large integers")
    return Lanes(apply(one, two), low, high)


def _sums(low1: float, high1: float, low2: float, high2: float) -> tuple[float, float]:
    return low1 + low2, high1 + high2


def _differences(low1: float, high1: float, low2: float, high2: float) -> tuple[float, float]:
    return low1 - high2, high1 - low2


def _products(low1: float, high1: float, low2: float, high2: float) -> tuple[float, float]:
    corners = (low1 * low2, low1 * high2, high1 * low2, high1 * high2)
    return min(corners), max(corners)


def _quotients(low1: float, high1: float, low2: float, high2: float) -> tuple[float, float]:
    _police_divisor(low2, high2)
    corners = (low1 // low2, low1 // high2, high1 // low2, high1 // high2)
    return min(corners), max(corners)


def _remainders(low1: float, high1: float, low2: float, high2: float) -> tuple[float, float]:
    _police_divisor(low2, high2)
    if low2 > 0:
        return 0, min(high1, high2 - 1) if low1 >= 0 else high2 - 1
    return low2 + 1, 0


def _police_divisor(low: float, high: float) -> None:
    if low <= 0 <= high:
        leave("a division by what may be zero")


def _bits(low1: float, high1: float, low2: float, high2: float) -> tuple[float, float]:
    if low1 < 0 or low2 < 0:
        leave("bits of negative integers")
    return 0, (1 << max(int(high1).bit_length(), int(high2).bit_length())) - 1


def _shifted_left(low1: float, high1: float, low2: float, high2: float) -> tuple[float, float]:
    if low1 < 0 or low2 < 0 or high2 > 53:  # noqa: PLR2004 -- bits of EXACT
        leave("a shift")
    return 0, int(high1) << int(high2)


def _shifted_right(low1: float, high1: float, low2: float, high2: float) -> tuple[float, float]:
    if low1 < 0 or low2 < 0 or high2 > 53:  # noqa: PLR2004 -- bits of EXACT
        leave("a shift")
    return 0, high1


_BOUNDS: dict[str, Callable[[float, float, float, float], tuple[float, float]]] = {
    "+": _sums,
    "-": _differences,
    "*": _products,
    "//": _quotients,
    "%": _remainders,
    "&": _bits,
    "|": _bits,
    "^": _bits,
    "<<": _shifted_left,
    ">>": _shifted_right,
}


def compared(symbol: str, first: Value, second: Value) -> Lanes:
    """Compare numbers."""
    one, two = number(first)[0], number(second)[0]
    return Lanes(COMPARED[symbol](one, two), 0, 1)


def contained(item: Value, within: Value) -> Lanes:
    """`item in within`, a list or range of plain numbers."""
    if isinstance(item, Lanes) and isinstance(within, list | range):
        if isinstance(within, range) and item.kind != "i":
            leave("in a range")
        if all(each.__class__ in {int, bool} for each in within):
            return Lanes(np.isin(item.values, np.asarray(list(within), np.int64)), 0, 1)
    return leave("in")


# -------------------------------------------------------------------------------------------------
# What functions make of tensors that differ from rank to rank.
#
# The language's own functions work on the stacked arrays, where they work element by element: a
# stack gives what its tensors give one by one.

if TYPE_CHECKING:
    Functions = Mapping[str, Callable[..., Any]]

#: floats -> the integers up to which all are among them
_WHOLE = {"float32": 2**24, "float64": EXACT}


def tensor_of(value: Value) -> NDArray[Any]:
    """Return the elements of what is a tensor on every rank, `[L, *shape]`."""
    if isinstance(value, Stack | View):
        return value.take()
    return leave("no tensor")


def elementwise(functions: Functions, key: str, *operands: Value) -> Stack:
    """Apply a function that works element by element, ranks apart."""
    tensors = [each for each in operands if isinstance(each, Stack | View | np.ndarray)]
    depth = max(_depth(each) for each in tensors)
    dtype = next((each.dtype for each in tensors if each.dtype != np.bool_), tensors[0].dtype)
    prepared = [_operand(functions, key, each, dtype, depth) for each in operands]
    return Stack(np.asarray(functions[key](*prepared)))


def _depth(value: Value) -> int:
    return value.ndim if isinstance(value, np.ndarray) else len(value.shape)


def _operand(
    functions: Functions, key: str, value: Value, dtype: np.dtype[Any], depth: int
) -> Value:
    """Return an operand with `depth` dimensions behind that of the ranks."""
    if isinstance(value, Stack | View):
        found = value.take()
        missing = depth - len(value.shape)
        return found.reshape(len(found), *(1,) * missing, *value.shape) if missing else found
    if isinstance(value, np.ndarray):
        return value.reshape((1,) * (1 + depth - value.ndim) + value.shape)
    if isinstance(value, Lanes):
        return _fitting(functions, key, value, dtype).reshape(-1, *(1,) * depth)
    if value.__class__ in {bool, int, float, complex}:
        return value
    return leave("a list among tensors")


def _fitting(functions: Functions, key: str, lanes: Lanes, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return numbers as elements of `dtype`, where that makes no difference to the result."""
    if lanes.kind == "b":
        if key == "where()":
            return lanes.values
        leave("a condition among tensors")
    if lanes.kind != "i":
        leave("fractions among tensors")
    most = _WHOLE.get(dtype.name)
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        fits = bounds.min <= lanes.low and lanes.high <= bounds.max
    else:
        fits = most is not None and -most <= lanes.low and lanes.high <= most
    if not fits or not _same_dtype(functions[key], key, dtype):
        leave("a number that its tensor would round")
    return lanes.values.astype(dtype)


@lru_cache(maxsize=256)
def _same_dtype(function: Callable[..., Any], key: str, dtype: np.dtype[Any]) -> bool:
    """Return whether a number and a tensor of one element give the same dtype with a tensor."""
    one = np.ones(1, dtype)
    condition = (np.ones(1, np.bool_),) if key == "where()" else ()
    made = [function(*condition, one, each) for each in (1, one)]
    return bool(made[0].dtype == made[1].dtype)


def joined(functions: Functions, key: str, parts: Sequence[Value], axis: Value, size: int) -> Stack:
    """`concat` and `stack` of tensors, of which some differ from rank to rank."""
    if axis.__class__ is not int or axis < 0:
        leave("an axis")
    arrays = []
    for part in parts:
        if isinstance(part, np.ndarray):
            arrays.append(np.broadcast_to(part, (size, *part.shape)))
        else:
            arrays.append(tensor_of(part))
    return Stack(np.asarray(functions[key](arrays, axis + 1)))


def filled(functions: Functions, shape: Value, value: Value, dtype: Value) -> Stack:
    """`full` with a number for each rank."""
    sample = functions["zeros()"](shape, dtype)
    kind = sample.dtype.kind
    if isinstance(value, Stack | View) and prod(value.shape) == 1:
        numbers = value.take().reshape(-1)
        if numbers.dtype != sample.dtype:
            leave("a fill value of another dtype")
    elif isinstance(value, Lanes):
        numbers = value.values
        exact = value.kind == "i" and kind in "iu"
        if exact:
            bounds = np.iinfo(sample.dtype)
            exact = bounds.min <= value.low and value.high <= bounds.max
        if not exact and not (kind == "f" and sample.dtype.itemsize > 2):  # noqa: PLR2004 -- a narrow float
            leave("a fill value that may not fit")
        numbers = numbers.astype(sample.dtype)
    else:
        leave("a fill value")
    wide = numbers.reshape(-1, *(1,) * sample.ndim)
    return Stack(np.broadcast_to(wide, (len(wide), *sample.shape)))


def reshaped(value: Value, shape: Value) -> Value:
    """`reshape`, of a part of what a name holds as a part of it."""
    sizes = tuple(shape) if isinstance(shape, list | range) else (shape,)
    if not isinstance(value, Stack | View) or any(
        each.__class__ is not int or each < 0 for each in sizes
    ):
        leave("reshape")
    if prod(sizes) != prod(value.shape):
        leave("another number of elements")
    if isinstance(value, View):
        places = value.places()
        return value.part(places.reshape(len(places), *sizes))
    return Stack(value.values.reshape(len(value.values), *sizes))


# -------------------------------------------------------------------------------------------------
# What operators make of values that differ from rank to rank: of numbers, of tensors, of both.
#
# What is neither of :mod:`runner.reference.vector.lanes` nor of
# :mod:`runner.reference.vector.lanes` is :class:`Beyond`.


def combined(functions: Functions, symbol: str, first: Value, second: Value) -> Value:
    """Apply a binary operator; at least one operand differs from rank to rank."""
    tensors = [each for each in (first, second) if isinstance(each, Stack | View | np.ndarray)]
    if not tensors:
        return (
            compared(symbol, first, second)
            if symbol in COMPARED
            else of_lanes(symbol, first, second)
        )
    if symbol not in ARITHMETIC and symbol not in COMPARED:
        leave(symbol)
    return elementwise(functions, symbol, first, second)


def negated(functions: Functions, value: Value) -> Value:
    """`-x`."""
    if isinstance(value, Lanes):
        values, low, high, _ = number(value)
        return Lanes(-values, -high, -low)
    return Stack(functions["u-"](tensor_of(value)))


def truth(value: Value) -> NDArray[np.bool_]:
    """Return for each rank whether a number is not zero."""
    if isinstance(value, Lanes):
        return value.values if value.kind == "b" else value.values != 0
    if isinstance(value, Stack | View) and value.shape == ():
        return np.asarray(value.take() != 0)
    return leave("a condition on a tensor")


def chosen(test: Value, first: Value, second: Value) -> Value:
    """`first if test else second`, both computed."""
    mask = truth(test)
    if isinstance(first, Stack | View) and isinstance(second, Stack | View):
        if first.shape != second.shape or first.dtype != second.dtype:
            leave("tensors of two shapes")
        wide = mask.reshape(-1, *(1,) * len(first.shape))
        return Stack(np.where(wide, first.take(), second.take()))
    one, low1, high1, _ = number(first)
    two, low2, high2, _ = number(second)
    if _type(first) != _type(second):
        leave("numbers of two kinds")
    values = np.where(mask, one, two)
    if _type(first) == "b":
        values = values.astype(np.bool_)
    return Lanes(values, min(low1, low2), max(high1, high2))


def _type(value: Value) -> str:
    if isinstance(value, Lanes):
        return value.kind
    return {bool: "b", int: "i", float: "f"}.get(value.__class__, "?")


def whole_number(value: Value) -> Lanes:
    """`int(x)`: cut off towards zero."""
    if isinstance(value, Lanes):
        if value.kind != "f":
            return Lanes(value.values.astype(np.int64), value.low, value.high)
        numbers = value.values
    elif isinstance(value, Stack | View) and prod(value.shape) == 1:
        numbers = value.take().reshape(-1)
    else:
        leave("int")
    if numbers.dtype.kind == "f":
        numbers = np.trunc(numbers.astype(np.float64))
        if not np.isfinite(numbers).all():
            leave("int of what is no number")
    elif numbers.dtype.kind not in "biu":
        leave("int")
    low, high = (int(each) for each in (numbers.min(), numbers.max()))
    if low < -EXACT or high > EXACT:
        leave("large integers")
    return Lanes(numbers.astype(np.int64), low, high)


def bits(name: str, value: Lanes) -> Lanes:
    """`bit_length(n)` and `bit_count(n)` of an integer on each rank."""
    if value.kind != "i":
        leave(name)
    size = np.abs(value.values)
    if name == "bit_count":
        counts = np.zeros_like(size)
        for at in range(EXACT.bit_length()):
            counts += (size >> at) & 1
        return Lanes(counts, 0, EXACT.bit_length())
    # frexp(n) is (m, e) with n = m * 2**e and 0.5 <= m < 1: exact up to 2**53
    return Lanes(np.frexp(size.astype(np.float64))[1].astype(np.int64), 0, EXACT.bit_length())


# -------------------------------------------------------------------------------------------------
# Parts of tensors and lists by indexes that may differ from rank to rank.


def part(value: Value, index: Value) -> Value:
    """`value[index]`, where either differs from rank to rank: a View of a View, else a copy."""
    if isinstance(value, Stack | View):
        if _plain(index):
            return _same_part(value, index if isinstance(index, tuple) else (index,))
        return _own_part(value, index)
    if isinstance(value, np.ndarray) and isinstance(index, Lanes | slice):
        return _own_part(Stack(value[np.newaxis]), index)
    if isinstance(value, list | range) and isinstance(index, Lanes):
        return _item(value, index)
    return leave("an index")


def _plain(index: Value) -> bool:
    if isinstance(index, tuple):
        return all(_plain(each) for each in index)
    if index.__class__ is slice:
        forwards = index.step is None or (index.step.__class__ is int and index.step > 0)
        bounds = (index.start, index.stop)
        return forwards and all(each is None or each.__class__ is int for each in bounds)
    return index is None or index.__class__ is int


def _same_part(value: Stack | View, index: tuple[Any, ...]) -> Stack | View:
    at = (slice(None), *index)
    if isinstance(value, View):
        return value.part(value.places()[at])
    return Stack(value.values[at])


def _own_part(value: Stack | View, index: Value) -> Stack | View:
    """Return what each rank's own integer, or slice, takes along dimension 0."""
    if not value.shape:
        leave("an index into a number")
    length = value.shape[0]
    if isinstance(index, Lanes) and index.kind == "i":
        at = _within(index, length)
    elif index.__class__ is slice and index.step is None:
        at = _run(index, length)
    else:
        leave("an index")
    if isinstance(value, Stack):
        return Stack(_gathered(value.values, at))
    if value.offsets is None and len(value.shape) == 1:
        return value.part(at)
    return value.part(_gathered(value.places(), at))


def _gathered(values: NDArray[Any], at: NDArray[np.int64]) -> NDArray[Any]:
    if len(values) == 1:
        return np.asarray(values[0][at])
    rows = np.arange(len(values)).reshape(-1, *(1,) * (at.ndim - 1))
    return np.asarray(values[rows, at])


def _within(index: Lanes, length: int) -> NDArray[np.int64]:
    values = index.values
    if index.low < 0 or index.high >= length:
        low, high = int(values.min()), int(values.max())
        if low < -length or high >= length:
            leave("an index out of bounds")
        if low < 0:
            values = np.where(values < 0, values + length, values)
    return values


def _run(index: slice, length: int) -> NDArray[np.int64]:
    """Return the places `[L, count]` of a slice; as many on every rank."""
    first = _bound(index.start, 0, length)
    last = _bound(index.stop, length, length)
    counts = np.maximum(last - first, 0)
    count = int(counts.flat[0]) if counts.ndim else int(counts)
    if (counts != count).any():
        leave("slices of several lengths")
    starts = np.asarray(first).reshape(-1, 1)
    return starts if count == 1 else starts + np.arange(count)


def _bound(bound: Value, default: int, length: int) -> Any:
    if bound is None:
        return np.int64(default)
    if bound.__class__ is int:
        return np.int64(slice(bound, None).indices(length)[0])
    if not isinstance(bound, Lanes) or bound.kind != "i":
        leave("a bound of a slice")
    values = bound.values
    if bound.low < 0:
        values = np.where(values < 0, values + length, values)
    if bound.low < 0 or bound.high > length:
        values = np.clip(values, 0, length)
    return values


def _item(items: list[Any] | range, index: Lanes) -> Lanes:
    if index.kind != "i" or not items or any(each.__class__ is not int for each in items):
        leave("an item of a list")
    table = np.asarray(list(items), np.int64)
    return Lanes(table[_within(index, len(items))], int(table.min()), int(table.max()))


# -------------------------------------------------------------------------------------------------
# Calls of the language's functions with arguments that differ from rank to rank.

#: functions that work element by element and round nowhere but at the end
_ELEMENTWISE = {
    *("abs", "sqrt", "minimum", "maximum", "where"),
    *("floor", "ceil", "round", "sign", "square", "isfinite", "isnan"),
}


def called(
    functions: Functions, name: str, given: list[Value], named: dict[str, Value], size: int
) -> Value:
    """Call one of the language's functions with something that differs, on `size` ranks."""
    if name in {"bit_length", "bit_count"} and isinstance(given[0], Lanes):
        return bits(name, given[0])
    if name in _ELEMENTWISE and not named and not all(isinstance(each, Lanes) for each in given):
        return elementwise(functions, f"{name}()", *given)
    if name == "astype" and not named and not varies(given[1]):
        return Stack(functions["astype()"](tensor_of(given[0]), given[1]))
    if name in {"concat", "stack"}:
        axis = given[1] if len(given) > 1 else named.pop("axis", 0)
        if not named:
            return joined(functions, f"{name}()", given[0], axis, size)
    if name == "full" and not named and not varies(given[0]):
        dtype = given[2] if len(given) > 2 else "float32"  # noqa: PLR2004 -- its third argument
        return filled(functions, given[0], given[1], dtype)
    if name == "reshape" and not named and not varies(given[1]):
        return reshaped(*given)
    if name == "int":
        return whole_number(given[0])
    if name in {"len", "shape", "numel"} and isinstance(given[0], Stack | View):
        return functions[f"{name}()"](np.broadcast_to(np.zeros(()), given[0].shape))
    return leave(name)


# -------------------------------------------------------------------------------------------------
# Names -> functions that give their value on all active ranks at once: leaves of expressions.


@dataclass(slots=True, eq=False)
class Scene:
    """Where an expression is evaluated: which ranks, the loops' variables, and what names hold."""

    active: Active
    variables: Mapping[str, int | Named]
    memory: Memory

    def variable(self, name: str) -> Value:
        """Return the value of a loop's variable, or of what `let` has named."""
        found = self.variables[name]
        return found.on(self.active) if isinstance(found, Named) else found


if TYPE_CHECKING:
    Closure = Callable[[Scene], Value]


class Leaves:
    """Compiles the names and constants of one plan's expressions."""

    def __init__(self, plan: Plan, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Share the language's functions, by the keys that compiled expressions use."""
        self._plan = plan
        self._functions = functions
        self._constants = plan.scenario.constants

    def constant(self, node: ast.Constant) -> Closure:
        """A number, True, False or None."""
        value = node.value
        return lambda _: value

    def name(self, node: ast.Name) -> Closure:
        """A constant, the variable of a loop, a tensor, a group."""
        name = node.id
        if name == "rank":
            return lambda scene: scene.active.rank
        if name == "world_size":
            size = self._plan.world_size
            return lambda _: size
        if name in self._constants:
            value = self._constants[name]
            return lambda _: value
        if name in self._plan.names:
            return lambda scene: self._group_ranks(name, scene)

        def held(scene: Scene) -> Value:
            if name in scene.variables:
                return scene.variable(name)
            return scene.memory.view(name, scene.active)

        if name not in self._plan.scenario.tensors and name not in self._plan.introduced:
            return self._variable_or_dtype(name)
        return held

    def _variable_or_dtype(self, name: str) -> Closure:
        def found(scene: Scene) -> Value:
            if name in scene.variables:
                return scene.variable(name)
            if _is_dtype(self._functions, name):
                return name
            return leave(name)

        return found

    def attribute(self, node: ast.Attribute) -> Closure:
        """The dotted name of a group."""
        dotted = ast.unparse(node)
        return lambda scene: self._group_ranks(dotted, scene)

    # ------------------------------------------------------------------ groups

    def _group_ranks(self, name: str, scene: Scene) -> list[int]:
        """Return a group's ranks where all active ranks are its members."""
        groups = self._plan.names.get(name, ())
        if len(groups) != 1 or groups[0].size < scene.active.size:
            leave("the ranks of several groups")
        if scene.memory.group_ranks(name)[scene.active.index].min(initial=0) < 0:
            leave("the ranks of a group of others")
        return groups[0].listed

    def group_call(self, node: ast.Call, name: str) -> Closure:
        """`group_rank(g)`, `group_size(g)`, `group_ranks(g)`."""
        given = node.args[0] if node.args else node.keywords[0].value
        group = ast.unparse(given)
        if group not in self._plan.names:
            group = str(self._constants.get(group, group))
        if name == "group_ranks":
            return lambda scene: list(self._group_ranks(group, scene))

        def group_rank(scene: Scene) -> Value:
            values = scene.memory.group_ranks(group)[scene.active.index]
            return Lanes(values, -1, self._plan.world_size - 1)

        def group_size(scene: Scene) -> Value:
            values = scene.memory.group_sizes(group)[scene.active.index]
            low, high = int(values.min()), int(values.max())
            return low if low == high else Lanes(values, low, high)

        return group_rank if name == "group_rank" else group_size

    def launch_call(self, name: str) -> Closure:
        """`node_rank()`, `local_rank()`."""
        part = ("node_rank", "local_rank").index(name)
        placed = [self._plan.placed(rank)[part] for rank in range(self._plan.world_size)]
        table = np.asarray(placed, np.int64)
        return lambda scene: Lanes(table[scene.active.index], 0, self._plan.world_size - 1)


def _is_dtype(functions: Mapping[str, Callable[..., Any]], name: str) -> bool:
    try:
        functions["zeros()"](0, name)
    except TypeError:
        return False
    return True


# -------------------------------------------------------------------------------------------------
# Expression -> a function that gives its value on all active ranks at once.
#
# The text was checked and compiled by the language already. Here it is parsed once more, into
# closures: what is the same on every rank goes through the language's own guarded functions, what
# differs through :mod:`runner.reference.vector.lanes`. What has no closure raises Beyond when
# called.


class Compiler(Leaves):
    """Compiles the expressions of one plan."""

    def compile(self, text: str) -> Closure:
        """Return the closure of an expression that the language has accepted."""
        return self._visit(ast.parse(text.strip().replace("\n", " "), mode="eval").body)

    def _visit(self, node: ast.expr) -> Closure:
        visitor = _VISITORS.get(type(node))
        return visitor(self, node) if visitor else _beyond(type(node).__name__)

    # ------------------------------------------------------------------ operators

    def binary(self, node: ast.BinOp) -> Closure:
        """Arithmetic."""
        symbol = BINARY[type(node.op)]
        functions, plain = self._functions, self._functions[symbol]
        left, right = self._visit(node.left), self._visit(node.right)

        def apply(scene: Scene) -> Value:
            first, second = left(scene), right(scene)
            if varies(first) or varies(second):
                return combined(functions, symbol, first, second)
            return plain(first, second)

        return apply

    def unary(self, node: ast.UnaryOp) -> Closure:
        """A sign, or `not`."""
        operand, functions = self._visit(node.operand), self._functions

        def refused(_: Scene) -> Value:
            leave("~")

        def negation(scene: Scene) -> Value:
            value = operand(scene)
            return Lanes(~truth(value), 0, 1) if varies(value) else not value

        def negative(scene: Scene) -> Value:
            value = operand(scene)
            return negated(functions, value) if varies(value) else functions["u-"](value)

        return {ast.Not: negation, ast.USub: negative}.get(type(node.op), refused)

    def boolean(self, node: ast.BoolOp) -> Closure:
        """`and`, `or`: of plain truth values, or where the first decides alone."""
        parts = [self._visit(value) for value in node.values]
        decides = isinstance(node.op, ast.Or)
        join = np.logical_or if decides else np.logical_and

        def apply(scene: Scene) -> Value:
            result = parts[0](scene)
            for each in parts[1:]:
                if not varies(result):
                    if bool(result) == decides:
                        return result
                    result = each(scene)
                    continue
                other = each(scene)
                if not (_is_truth(result) and _is_truth(other)):
                    leave("a choice of values")
                values = other.values if isinstance(other, Lanes) else other
                result = Lanes(np.asarray(join(result.values, values)), 0, 1)
            return result

        return apply

    def conditional(self, node: ast.IfExp) -> Closure:
        """`x if c else y`."""
        test, first, second = (self._visit(each) for each in (node.test, node.body, node.orelse))

        def apply(scene: Scene) -> Value:
            found = test(scene)
            if not varies(found):
                return first(scene) if found else second(scene)
            return chosen(found, first(scene), second(scene))

        return apply

    def compare(self, node: ast.Compare) -> Closure:
        """Comparisons, of two operands or in a chain."""
        if any(type(op) not in COMPARISONS for op in node.ops):
            return _beyond("is")
        symbols = [COMPARISONS[type(op)] for op in node.ops]
        parts = [self._visit(each) for each in (node.left, *node.comparators)]

        def apply(scene: Scene) -> Value:
            first, result = parts[0](scene), None
            for symbol, each in zip(symbols, parts[1:], strict=True):
                second = each(scene)
                found = self._compared(symbol, first, second)
                result = found if result is None else _both(result, found)
                first = second
            return result

        return apply

    def _compared(self, symbol: str, first: Value, second: Value) -> Value:
        if not varies(first) and not varies(second):
            return self._functions[symbol](first, second)
        if symbol == "in":
            return contained(first, second)
        if symbol == "not in":
            return Lanes(~contained(first, second).values, 0, 1)
        return combined(self._functions, symbol, first, second)

    # ------------------------------------------------------------------ parts and lists

    def subscript(self, node: ast.Subscript) -> Closure:
        """A part of a tensor, an item of a list."""
        value, index, plain = (
            self._visit(node.value),
            self._index(node.slice),
            self._functions["[]"],
        )

        def apply(scene: Scene) -> Value:
            found, at = value(scene), index(scene)
            if not varies(found) and not _index_varies(at):
                return plain(found, at)
            return part(found, at)

        return apply

    def _index(self, node: ast.expr) -> Closure:
        if isinstance(node, ast.Tuple):
            parts = [self._index(each) for each in node.elts]
            return lambda scene: tuple(each(scene) for each in parts)
        if isinstance(node, ast.Slice):
            bounds = [
                self._visit(each or ast.Constant(value=None))
                for each in (node.lower, node.upper, node.step)
            ]
            return lambda scene: slice(*(each(scene) for each in bounds))
        return self._visit(node)

    def sequence(self, node: ast.List | ast.Tuple) -> Closure:
        """A list."""
        parts = [self._visit(each) for each in node.elts]
        return lambda scene: [each(scene) for each in parts]

    def call(self, node: ast.Call) -> Closure:
        """A call of one of the language's functions."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in {"group_rank", "group_size", "group_ranks"}:
            return self.group_call(node, name)
        if name in {"node_rank", "local_rank"}:
            return self.launch_call(name)
        function = self._functions.get(f"{name}()")
        if function is None:
            return _beyond(name)
        arguments = [self._visit(each) for each in node.args]
        keywords = {str(each.arg): self._visit(each.value) for each in node.keywords}

        def apply(scene: Scene) -> Value:
            given = [each(scene) for each in arguments]
            named = {key: each(scene) for key, each in keywords.items()}
            if not any(map(varies, given)) and not any(map(varies, named.values())):
                return function(*given, **named)
            return called(self._functions, name, given, named, scene.active.size)

        return apply


def _index_varies(index: Value) -> bool:
    if isinstance(index, tuple):
        return any(_index_varies(each) for each in index)
    if index.__class__ is slice:
        return varies(index.start) or varies(index.stop) or varies(index.step)
    return varies(index)


def _is_truth(value: Value) -> bool:
    return value.__class__ is bool or (isinstance(value, Lanes) and value.kind == "b")


def _both(first: Value, second: Value) -> Value:
    """Return `first and second`, both truth values."""
    if not varies(first):
        return second if first else first
    if not _is_truth(first) or not _is_truth(second):
        leave("a chain of comparisons")
    values = second.values if isinstance(second, Lanes) else second
    return Lanes(np.asarray(np.logical_and(truth(first), values)), 0, 1)


def _beyond(what: str) -> Closure:
    def refused(_: Scene) -> Value:
        leave(what)

    return refused


_VISITORS: dict[type[ast.expr], Any] = {
    ast.Constant: Compiler.constant,
    ast.Name: Compiler.name,
    ast.Attribute: Compiler.attribute,
    ast.BinOp: Compiler.binary,
    ast.UnaryOp: Compiler.unary,
    ast.BoolOp: Compiler.boolean,
    ast.IfExp: Compiler.conditional,
    ast.Compare: Compiler.compare,
    ast.Subscript: Compiler.subscript,
    ast.List: Compiler.sequence,
    ast.Tuple: Compiler.sequence,
    ast.Call: Compiler.call,
}
