"""NumPy and torch as one array library: dtypes, promotion, casts, literals."""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any, Protocol, TypeAlias

import ml_dtypes
import numpy as np

from torch_scenarios.limits import explain_size
from torch_scenarios.vocabulary import DTYPES

# -------------------------------------------------------------------------------------------------
# Whatever an expression holds.

#: whatever an expression holds: a number, an array of either library, a list
Value: TypeAlias = Any


# -------------------------------------------------------------------------------------------------
# What an executor's array library must offer: the seam between evaluation and NumPy or torch.


class Arrays(Protocol):
    """The array library of one executor. Dtypes are named as torch names them.

    The reference computes with NumPy, a worker with torch. An expression, a loop or a store is the
    same code over either, and what they must agree on to the bit is stated here: dtypes, promotion,
    rounding.
    """

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """Return the functions of the expression language under `name()`; not to be changed."""

    def array(self, data: Any, dtype: str) -> Any:
        """Make an array from a number, a nested list or an array; the result is a fresh copy."""

    def copy(self, value: Any) -> Any:
        """Return an array that shares no memory with `value` and keeps its dtype and strides."""

    def is_array(self, value: object) -> bool:
        """Return whether `value` is an array of this library."""

    def dtype(self, value: Any) -> str:
        """Return the name of the dtype of an array."""

    def store(self, part: Value, value: Value) -> None:
        """Store a value into a part of an array, broadcast and cast as torch's `copy_` does.

        ValueError where its size does not fit.
        """

    def shares(self, part: Value, array: Value) -> bool:
        """Return whether a part of an array is in the array's own memory, and no copy."""

    def reshape(self, value: Any, shape: tuple[int, ...]) -> Any:
        """Return `value` in another shape; a single element fills the shape."""


# -------------------------------------------------------------------------------------------------
# Which dtype an operation gives, by the names of dtypes alone: one rule for both executors.
#
# The Python array API standard's rules; where it leaves mixed kinds open, torch's: the kind
# decides (`bool < int < float < complex`), and an integer tensor with a float is float32, torch's
# default. A Python number never widens a tensor of its kind, or of a higher one.

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
def promote(first: str, second: str) -> str:
    """Return the dtype in which two tensors meet; TypeError where there is none."""
    if first == second:
        return first
    low, high = sorted((first, second), key=lambda each: _KINDS.index(kind(each)))
    if kind(low) != kind(high):
        if kind(high) == "complex" and low == "float64":
            return "complex128"
        return high
    return _promote_in_kind(low, high)


def _promote_in_kind(first: str, second: str) -> str:
    low, high = sorted((first, second), key=bits)
    if kind(high) != "int":
        return DEFAULT_FLOAT if bits(low) == bits(high) else high
    if low.startswith("u") == high.startswith("u") or (bits(low) < bits(high) and low[0] == "u"):
        return high
    wider = 2 * bits(high)
    if wider > 64:
        message = f"{first} and {second} have no common dtype; use astype on one of them"
        raise TypeError(message)
    return f"int{wider}"


@cache
def promote_by_number(dtype: str, number: type) -> str:
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


# -------------------------------------------------------------------------------------------------
# NumPy and torch as one array library: dtypes by torch's names, casts, the way between the two.
#
# What stands here is all that differs; the language's functions and operators are written once,
# over a :class:`Library`. Torch is handed in, never imported.

#: name -> NumPy's dtype; those that NumPy lacks come from ml_dtypes
NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(getattr(ml_dtypes, name, None) or name) for name in DTYPES
}

#: NumPy's dtype -> name
NUMPY_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}

_NUMPY_TYPES = (np.ndarray, np.generic)

#: dtypes in which torch stores, and hardly computes
_HOST_ONLY = frozenset({"uint16", "uint32", "uint64"}.union(n for n in DTYPES if "float8" in n))


#: a context that changes nothing; it may be entered again and again
_AS_IT_IS = contextlib.nullcontext()


class ArrayLibrary(ABC):
    """An array library. `xp` is its array API namespace, `array` the class of its arrays.

    Where the array API standard leaves something open, an heir does what torch does.

    >>> library = NumpyLibrary()
    >>> library.name(np.zeros(1, np.float32))
    'float32'
    """

    xp: Any
    array: type

    @abstractmethod
    def is_array(self, value: object) -> bool:
        """Return whether `value` is an array of this library."""

    @abstractmethod
    def name(self, array: Value) -> str:
        """Return the name of an array's dtype."""

    @abstractmethod
    def cast(self, array: Value, dtype: str) -> Value:
        """Return a new array of that dtype: integers wrap, narrow floats are rounded by float32."""

    @abstractmethod
    def copy(self, array: Value) -> Value:
        """Return a new array with the same strides, where these are dense."""

    @abstractmethod
    def from_numpy(self, array: np.ndarray[Any, Any]) -> Value:
        """Return a NumPy array as one of this library; it may share the memory."""

    @abstractmethod
    def to_numpy(self, array: Value) -> np.ndarray[Any, Any]:
        """Return an array as one of NumPy; it may share the memory."""

    @abstractmethod
    def must_leave(self, dtype: str, *, is_product: bool = False) -> bool:
        """Return whether this library cannot compute in the dtype, so that NumPy has to."""

    def wrap(self, result: Value) -> Value:
        """Return a result as an array: NumPy gives a scalar where an array has no dimensions."""
        return result

    def quiet(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which overflow and division by zero give their IEEE values."""
        return _AS_IT_IS

    def view(self, array: Value, index: tuple[Any, ...]) -> Value:
        """Return a part of an array by integers, slices and None; it shares the memory."""
        return array[index]

    @abstractmethod
    def shares(self, part: Value, array: Value) -> bool:
        """Return whether a part of an array is in the array's own memory, and no copy."""


class NumpyLibrary(ArrayLibrary):
    """NumPy, with ml_dtypes for bfloat16 and the float8 dtypes.

    >>> third = NumpyLibrary().cast(np.array([1 / 3]), "bfloat16")
    >>> third.dtype.name, float(third[0])
    ('bfloat16', 0.333984375)

    A float64 is rounded by way of float32 to a narrow dtype, as torch does, although one rounding
    would be closer.
    """

    array = np.ndarray

    def __init__(self) -> None:
        """Take NumPy itself where it is the array API (from 2.0); array-api-compat before that."""
        self.xp = np
        if not hasattr(np, "permute_dims"):
            import array_api_compat.numpy as xp

            self.xp = xp

    def is_array(self, value: object) -> bool:
        """Return whether `value` is a NumPy array, or the scalar that NumPy makes of one."""
        return isinstance(value, _NUMPY_TYPES)

    def name(self, array: Value) -> str:
        """Return torch's name of the dtype."""
        name = NUMPY_NAMES.get(array.dtype)
        if name is None:
            message = f"{array.dtype} is not a dtype of the language"
            raise TypeError(message)
        return name

    def cast(self, array: Value, dtype: str) -> Value:
        """Return a new array of that dtype."""
        if array.dtype.kind == "c" and kind(dtype) != "complex":
            array = array.real
        with np.errstate(all="ignore"):
            if dtype in NARROW and array.dtype == np.float64:
                array = array.astype(np.float32)
            return np.asarray(array).astype(NUMPY_DTYPES[dtype])

    def copy(self, array: Value) -> Value:
        """Return a new array with the same strides."""
        return np.array(array, order="K")

    def from_numpy(self, array: np.ndarray[Any, Any]) -> Value:
        """Return the array itself."""
        return array

    def to_numpy(self, array: Value) -> np.ndarray[Any, Any]:
        """Return the array itself."""
        return np.asarray(array)

    def must_leave(self, dtype: str, *, is_product: bool = False) -> bool:
        """Return False: NumPy computes in every dtype."""
        return False

    def wrap(self, result: Value) -> Value:
        """Return an array for a scalar."""
        return np.asarray(result)

    def shares(self, part: Value, array: Value) -> bool:
        """Ask NumPy for the bounds of both in memory."""
        return np.may_share_memory(part, array)

    def quiet(self) -> contextlib.AbstractContextManager[Any]:
        """Silence NumPy's warnings on IEEE values."""
        return np.errstate(all="ignore")

    def view(self, array: Value, index: tuple[Any, ...]) -> Value:
        """Return a view; the dots keep NumPy from copying a single element into a scalar."""
        return array[(*index, ...)]


class TorchLibrary(ArrayLibrary):
    """Torch on one device.

    It is handed torch and imports none: the analysis computes the same without torch.
    """

    def __init__(self, torch: ModuleType, device: object = "cpu") -> None:
        """Keep torch as it was handed in; new arrays are made on `device`."""
        import array_api_compat.torch as xp

        self.xp = xp
        self._torch = torch
        self.array = torch.Tensor
        self._device = torch.device(device)
        self._dtypes = {name: getattr(torch, name) for name in DTYPES}
        self._names = {dtype: name for name, dtype in self._dtypes.items()}

    def is_array(self, value: object) -> bool:
        """Return whether `value` is a tensor."""
        return isinstance(value, self._torch.Tensor)

    def name(self, array: Value) -> str:
        """Return the name of the dtype."""
        return self._names[array.dtype]

    def cast(self, array: Value, dtype: str) -> Value:
        """Return a new tensor of that dtype; float8 is rounded by NumPy's rule."""
        if array.dtype.is_complex and kind(dtype) != "complex":
            array = array.real
        if "float8" in dtype and self.name(array) != dtype:
            wide = array if array.dtype.is_floating_point else array.to(self._torch.float64)
            numbers = self.to_numpy(wide.to(self._torch.float32))
            return self.from_numpy(numbers.astype(NUMPY_DTYPES[dtype]))
        if dtype in NARROW and array.dtype == self._torch.float64:
            array = array.to(self._torch.float32)
        return array.to(self._dtypes[dtype], copy=True)

    def shares(self, part: Value, array: Value) -> bool:
        """Compare where the storages of both begin."""
        places = [each.untyped_storage().data_ptr() for each in (part, array)]
        return bool(places[0] == places[1])

    def copy(self, array: Value) -> Value:
        """Return a clone."""
        return array.detach().clone()

    def from_numpy(self, array: np.ndarray[Any, Any]) -> Value:
        """Return a tensor on the device; bfloat16 and float8 travel as their bits.

        The host does not wait for what the device still has to do: CUDA has taken pageable memory
        over by the time that the copy returns (CUDA runtime, API synchronization behavior).
        """
        dtype = NUMPY_NAMES[array.dtype]
        if dtype in NARROW and dtype != "float16":
            raw = array.view(np.uint8 if array.itemsize == 1 else np.int16)
            tensor = self._torch.from_numpy(raw).view(self._dtypes[dtype])
        else:
            # NumPy has two types of 64 bits that are equal; torch takes one of them
            tensor = self._torch.from_numpy(array.view(NUMPY_DTYPES[dtype]))
        return tensor.to(self._device, non_blocking=True)

    def to_numpy(self, array: Value) -> np.ndarray[Any, Any]:
        """Return a NumPy array; waits for the device where the tensor is on one."""
        array, dtype = array.detach().cpu(), self.name(array)
        if dtype in NARROW and dtype != "float16":
            raw = self._torch.uint8 if array.element_size() == 1 else self._torch.int16
            bits: np.ndarray[Any, Any] = array.view(raw).numpy()
            return bits.view(NUMPY_DTYPES[dtype])
        numbers: np.ndarray[Any, Any] = array.numpy()
        return numbers

    def must_leave(self, dtype: str, *, is_product: bool = False) -> bool:
        """Return whether torch lacks the arithmetic; on a device also products of integers."""
        if dtype in _HOST_ONLY:
            return True
        return is_product and self._device.type != "cpu" and kind(dtype) in {"bool", "int"}


# -------------------------------------------------------------------------------------------------
# Numbers and nested lists -> NumPy arrays: what YAML's data, and a list of numbers, mean.
#
# A literal is exact or refused: rows of one length, integers in the dtype's range, no fractions in
# an integer dtype. Nothing here knows of torch; the torch executor converts what is made here.

_EXACT_KINDS = "biu"


def make_array(data: Value, dtype: str, max_elements: int) -> np.ndarray[Any, Any]:
    """Return a new array of that dtype; ValueError or TypeError says what does not fit."""
    _police_size(data, max_elements)
    try:
        found = np.asarray(data)
    except ValueError:
        message = "its rows differ in length or in depth"
        raise ValueError(message) from None
    if found.dtype.kind == "O":
        found = _convert_objects(found, dtype)
    elif found.dtype.kind not in "biufc":
        message = "text cannot be used where numbers are wanted"
        raise TypeError(message)
    return fit(found, dtype)


def fit(found: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Return an array of numbers as a new one of that dtype; ValueError where one does not fit."""
    if found.dtype.kind == "c" and kind(dtype) != "complex":
        raise ValueError(unreal(dtype))
    if found.size and is_exact(dtype) and dtype != "bool":
        _police_integers(found, dtype)
    made = NUMPY_DTYPES[dtype]
    if found.dtype == made:
        return found.copy(order="K")
    with np.errstate(all="ignore"):
        if dtype in NARROW:
            found = found.astype(np.float32)
        return np.array(found, dtype=made)


def unreal(dtype: str) -> str:
    """Say that a complex number is wanted in a dtype that has no imaginary part."""
    return f"a complex number does not fit {dtype}; state `dtype: complex64`"


def _police_size(data: Value, max_elements: int) -> None:
    """Refuse what would be too large, by the lengths along the first items."""
    count, level = 1, data
    while isinstance(level, list | tuple | range):
        count *= len(level)
        if count > max_elements:
            raise ValueError(explain_size(count, max_elements))
        if not level:
            return
        level = level[0]


def _convert_objects(found: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Return what NumPy takes for objects: integers beyond 64 bits, None, or nonsense."""
    for item in found.flat:
        if item is None:
            message = "a part of it has no value on this rank"
            raise ValueError(message)
        if not isinstance(item, int | float | complex):
            message = f"{type(item).__name__} cannot be used where a number is wanted"
            raise TypeError(message)
    if is_exact(dtype):
        low, high = integer_range(dtype)
        wrong = [item for item in found.flat if not low <= item <= high]
        if wrong:
            raise ValueError(_word_unfit(wrong[0], dtype))
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
        raise ValueError(_word_unfit(wrong[0].item(), dtype))


def _word_unfit(value: float, dtype: str) -> str:
    low, high = integer_range(dtype)
    return f"{value} does not fit {dtype}, whose values are the integers from {low} to {high}"
