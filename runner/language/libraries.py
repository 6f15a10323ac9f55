"""NumPy and torch as one array library: dtypes by torch's names, casts, the way between the two.

What stands here is all that differs; the language's functions and operators are written once, over
a :class:`Library`. Torch is handed in, never imported.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from runner.language.promotion import NARROW, kind
from runner.vocabulary import DTYPES

if TYPE_CHECKING:
    from types import ModuleType

    from runner.language.arithmetic import Value

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


class Library(ABC):
    """An array library. `xp` is its array API namespace, `array` the class of its arrays."""

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

    def wrapped(self, result: Value) -> Value:
        """Return a result as an array: NumPy gives a scalar where an array has no dimensions."""
        return result

    def quiet(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which overflow and division by zero give their IEEE values."""
        return _AS_IT_IS

    def view(self, array: Value, index: tuple[Any, ...]) -> Value:
        """Return a part of an array by integers, slices and None; it shares the memory."""
        return array[index]


class NumpyLibrary(Library):
    """NumPy, with ml_dtypes for bfloat16 and the float8 dtypes."""

    array = np.ndarray

    def __init__(self) -> None:
        """Take NumPy itself where it is the array API (from 2.0); array-api-compat before that."""
        self.xp = np
        if not hasattr(np, "permute_dims"):
            import array_api_compat.numpy as xp  # noqa: PLC0415 -- slow to import

            self.xp = xp

    def is_array(self, value: object) -> bool:
        """Return whether `value` is a NumPy array, or the scalar that NumPy makes of one."""
        return isinstance(value, _NUMPY_TYPES)

    def name(self, array: Value) -> str:
        """Return torch's name of the dtype."""
        name = NUMPY_NAMES.get(array.dtype)
        if name is None:
            message = f"{array.dtype} is no dtype of the language"
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

    def must_leave(self, dtype: str, *, is_product: bool = False) -> bool:  # noqa: ARG002
        """Return False: NumPy computes in every dtype."""
        return False

    def wrapped(self, result: Value) -> Value:
        """Return an array for a scalar."""
        return np.asarray(result)

    def quiet(self) -> contextlib.AbstractContextManager[Any]:
        """Silence NumPy's warnings on IEEE values."""
        return np.errstate(all="ignore")

    def view(self, array: Value, index: tuple[Any, ...]) -> Value:
        """Return a view; the dots keep NumPy from copying a single element into a scalar."""
        return array[(*index, ...)]


class TorchLibrary(Library):
    """Torch on one device."""

    def __init__(self, torch: ModuleType, device: object = "cpu") -> None:
        """Keep torch as it was handed in; new arrays are made on `device`."""
        import array_api_compat.torch as xp  # noqa: PLC0415 -- imports torch

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
