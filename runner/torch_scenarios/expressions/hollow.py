"""Tensors without values: the shape and dtype that an expression has, and no element.

What a program sends depends on shapes and dtypes, hardly ever on values. A hollow array is one
element that all places share (strides of 0), so that one of a terabyte takes a few bytes; views of
it are NumPy's own. :class:`HollowArrays` are the functions of the language for them. Whatever asks
for a value raises :class:`ValueNeeded`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from math import ceil, prod
from typing import Any, NoReturn

import numpy as np
from msgspec.structs import replace

from torch_scenarios.expressions.functions import NumpyArrays, sizes
from torch_scenarios.expressions.signatures import EACH, INDEX
from torch_scenarios.limits import DEFAULT, Limits

Value = Any

#: where the one element of every hollow array is: wide enough for any dtype
_NOTHING = np.zeros(4, np.complex128)
_ADDRESS = _NOTHING.__array_interface__["data"][0]


class ValueNeeded(Exception):
    """Shapes do not tell: a value of a tensor is asked for that has none, or members differ.

    all_to_all_single: {input_split_sizes: counts}      `counts` was received: what is it worth?
    """


def need(why: str) -> NoReturn:
    """Leave a program to the analysis of values."""
    raise ValueNeeded(why)


def _refuse(*_given: Any) -> NoReturn:
    raise ValueNeeded


class HollowArray(np.ndarray[Any, Any]):
    """An array of which only shape and dtype are known.

    >>> big = hollow((1 << 20, 1 << 20), np.float32)
    >>> big.shape, big[0].shape, is_hollow(big[0])
    ((1048576, 1048576), (1048576,), True)

    All its elements are one address (strides of 0), so that slices, transposes and broadcasts are
    NumPy's own and take no memory. To ask for a value raises.

    >>> big.tolist()
    Traceback (most recent call last):
        ...
    torch_scenarios.expressions.hollow.ValueNeeded
    """

    __bool__ = __int__ = __float__ = __complex__ = __index__ = _refuse
    item = tolist = _refuse


def hollow(shape: Sequence[int], dtype: Any) -> np.ndarray[Any, Any]:
    """Return an array of which only shape and dtype are known; it cannot be written to."""
    found = np.dtype(dtype)
    one = _NOTHING[:1].view(np.uint8)[: found.itemsize].view(found)
    wide = np.lib.stride_tricks.as_strided(one, tuple(shape), (0,) * len(shape), writeable=False)
    found_view: np.ndarray[Any, Any] = wide.view(HollowArray)
    return found_view


def is_hollow(value: object) -> bool:
    """Return whether an array has no values.

    >>> is_hollow(hollow((2, 2), np.float32)), is_hollow(np.zeros((2, 2)))
    (True, False)
    """
    return isinstance(value, np.ndarray) and bool(value.__array_interface__["data"][0] == _ADDRESS)


def pick(values: np.ndarray[Any, Any], rows: Any) -> np.ndarray[Any, Any]:
    """Return the rows of an array that are picked; of a hollow one it copies nothing."""
    if is_hollow(values):
        return hollow((len(rows), *values.shape[1:]), values.dtype)
    found: np.ndarray[Any, Any] = values[rows]
    return found


def _is_whole(value: Value) -> bool:
    return isinstance(value, np.ndarray | np.generic)


def _probe(value: Value) -> Value:
    """Return a value of one element in the place of a tensor, to learn the dtype of a result."""
    if _is_whole(value):
        return np.ones((1,) * value.ndim, value.dtype)
    if isinstance(value, list | tuple):
        return type(value)(_probe(each) for each in value)
    return value


def _shapes(values: Sequence[Value]) -> list[tuple[int, ...]]:
    return [value.shape for value in values if _is_whole(value)]


def _elementwise(given: Sequence[Value], _made: Value) -> tuple[int, ...]:
    return np.broadcast_shapes(*_shapes(given))


def _reduce_shape(
    given: Sequence[Value], axis: Value = None, keepdims: Value = None
) -> tuple[int, ...]:
    """Return the shape of a tensor that is reduced along dimensions, or of a list's elements."""
    first = given[0]
    if not _is_whole(first):
        items = first if isinstance(first, list | tuple) else given
        return np.broadcast_shapes(*_shapes(items))
    shape = first.shape
    chosen = range(len(shape)) if axis is None else axis if isinstance(axis, list) else [axis]
    gone = {each % len(shape) for each in chosen} if shape else set()
    if keepdims:
        return tuple(1 if at in gone else size for at, size in enumerate(shape))
    return tuple(size for at, size in enumerate(shape) if at not in gone)


def _product(given: Sequence[Value]) -> tuple[int, ...]:
    one, two = _shapes(given)
    left, right = (1, *one) if len(one) == 1 else one, (*two, 1) if len(two) == 1 else two
    if left[-1] != right[-2]:
        message = f"shapes {list(one)} and {list(two)} do not fit a product"
        raise ValueError(message)
    found = (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])
    found = found[:-2] + found[-1:] if len(one) == 1 else found
    return found[:-1] if len(two) == 1 else found


def _join_shapes(name: str, arrays: Value, axis: int) -> tuple[int, ...]:
    shapes = _shapes(arrays)
    if name == "stack()":
        at = axis % (len(shapes[0]) + 1)
        return (*shapes[0][:at], len(shapes), *shapes[0][at:])
    at = axis % len(shapes[0])
    rest = {(*each[:at], *each[at + 1 :]) for each in shapes}
    if len(rest) > 1:
        message = f"shapes {', '.join(str(list(each)) for each in shapes)} cannot be joined"
        raise ValueError(message)
    return (*shapes[0][:at], sum(each[at] for each in shapes), *shapes[0][at + 1 :])


_ELEMENTWISE = frozenset(
    {
        *("+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "u+", "u-", "~"),
        *("==", "!=", "<", "<=", ">", ">="),
        *(f"{name}()" for name in ("exp", "log", "sqrt", "tanh", "log1p", "expm1", "log2")),
        *(f"{name}()" for name in ("floor", "ceil", "round", "sign", "square", "abs")),
        *(f"{name}()" for name in ("isfinite", "isnan", "minimum", "maximum", "where", "astype")),
        *("flip()", "roll()", "cumulative_sum()"),
    }
)
_REDUCING = frozenset(
    f"{name}()" for name in ("sum", "prod", "min", "max", "mean", "any", "all", "argmin", "argmax")
)
_NUMBERS = frozenset({"int()", "float()", "bool()", "in", "not in"})
_SHAPED = frozenset({"full()", "zeros()", "ones()", "random()"})


class HollowArrays(NumpyArrays):
    """The functions of the language for tensors of which only shape and dtype are known.

    >>> functions = HollowArrays().functions()
    >>> functions["@"](hollow((4096, 8192), np.float32), hollow((8192, 16), np.float32)).shape
    (4096, 16)
    """

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """Return what compiled expressions call."""
        return self._hollow

    @cached_property
    def _hollow(self) -> dict[str, Callable[..., Any]]:
        return {key: self._lower(key, each) for key, each in super().functions().items()}

    def _lower(self, key: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        if key in _ELEMENTWISE:
            return _make_function(plain, lambda given, _named: _elementwise(given[:3], None))
        if key in _REDUCING:
            return _make_function(
                plain, lambda given, named: _reduce_shape(given, *given[1:], **named)
            )
        if key in {"@", "matmul()"}:
            return _make_function(plain, lambda given, _named: _product(given))
        if key in {"concat()", "stack()"}:
            return _make_function(
                plain,
                lambda given, named: _join_shapes(
                    key, given[0], *given[1:], **named or {"axis": 0}
                ),
            )
        lowered: dict[str, Callable[..., Any]] = {
            **dict.fromkeys(_SHAPED, _fill),
            **dict.fromkeys(_NUMBERS, _number),
            "arange()": _count_up,
            "linspace()": _space,
            "eye()": _unit,
            INDEX: _part,
            EACH: _each,
        }
        made = lowered.get(key)
        return plain if made is None else lambda *given, **named: made(plain, *given, **named)

    def array(self, data: Value, dtype: str) -> Value:
        """Make an array; of its values none is kept."""
        if _is_whole(data):
            return hollow(data.shape, _kind(super().array, dtype))
        made = super().array(data, dtype)
        return hollow(made.shape, made.dtype)

    def copy(self, value: Value) -> Value:
        """Return the array itself, which nothing changes."""
        return value

    def reshape(self, value: Value, shape: tuple[int, ...]) -> Value:
        """Return an array in another shape; a single element fills the shape."""
        held = prod(value.shape)
        if min(shape, default=0) < 0 or held not in {1, prod(shape)}:
            message = f"{held} elements do not fill the shape {list(shape)}"
            raise ValueError(message)
        return hollow(shape, value.dtype)

    def store(self, part: Value, value: Value) -> None:
        """Store nothing; ValueError where it would not fit."""
        shape = value.shape if _is_whole(value) else np.shape(value)
        if np.broadcast_shapes(part.shape, shape) != part.shape:
            message = f"a value of shape {list(shape)} does not fit a part of {list(part.shape)}"
            raise ValueError(message)


def _kind(make: Callable[[Any, str], Any], dtype: str) -> Any:
    return make(0, dtype).dtype


def _make_function(
    plain: Callable[..., Any], shape_of: Callable[[Sequence[Value], Mapping[str, Any]], Any]
) -> Callable[..., Any]:
    """Return a function whose result has a shape that is known, and the dtype of `plain`'s own."""

    def lower(*given: Value, **named: Value) -> Value:
        if not _arrays_in(given):
            return plain(*given, **named)
        shape = shape_of(given, named)
        made = plain(*(_probe(each) for each in given), **named)
        return hollow(shape, made.dtype) if _is_whole(made) else made

    return lower


def _arrays_in(given: Sequence[Value]) -> bool:
    return any(
        _is_whole(each) or (isinstance(each, list | tuple) and _arrays_in(each)) for each in given
    )


def _fill(plain: Callable[..., Any], shape: Value, *given: Value, **named: Value) -> Value:
    """`full`, `zeros`, `ones`, `random`: what they are filled with is not looked at."""
    wide = sizes(shape)
    given = tuple(0 if _is_whole(each) else each for each in given)
    named = {name: 0 if _is_whole(each) else each for name, each in named.items()}
    return hollow(wide, plain([1] * len(wide), *given, **named).dtype)


def _count_up(
    plain: Callable[..., Any], start: Value, stop: Value = None, step: Value = 1, **named: Value
) -> Value:
    first, last = (0, start) if stop is None else (start, stop)
    count = max(0, ceil((last - first) / step))
    return hollow((count,), plain(0, 1, 1, **named).dtype if named else plain(first, first).dtype)


def _space(plain: Callable[..., Any], *given: Value, **named: Value) -> Value:
    made = plain(*given, **named)
    return hollow(made.shape, made.dtype)


_unit = _space


def _number(plain: Callable[..., Any], *given: Value, **named: Value) -> Value:
    if _arrays_in(given):
        raise ValueNeeded
    return plain(*given, **named)


def _part(plain: Callable[..., Any], value: Value, index: Value) -> Value:
    if _arrays_in([index]):
        raise ValueNeeded
    made = plain(value, index)
    if _is_whole(made) and _is_whole(value) and not is_hollow(made):
        return hollow(made.shape, made.dtype)
    return made.view(HollowArray) if is_hollow(made) else made


def _each(plain: Callable[..., Any], iterable: Value, weight: int, unpacks: bool) -> Value:
    if unpacks and _is_whole(iterable):
        raise ValueNeeded
    return plain(iterable, weight, unpacks)


#: bounds on what is made are for memory and time, of which hollow arrays take none
_BOUNDLESS = ("max_elements", "max_bytes", "max_run_bytes", "max_work", "max_steps", "max_turns")


def boundless(limits: Limits) -> Limits:
    """Return limits without those that hollow arrays never come to."""
    return replace(limits, **dict.fromkeys(_BOUNDLESS, 2**62))


@cache
def hollow_arrays(limits: Limits = DEFAULT) -> HollowArrays:
    """Return the one library of hollow arrays under these limits."""
    return HollowArrays(boundless(limits))
