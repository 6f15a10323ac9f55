"""The functions of the expression language over NumPy (the reference) and torch (the worker).

One table of names, written once over a :class:`runner.language.libraries.Library`; the two classes
here put it together. Both keep :class:`runner.arrays.Arrays`. Torch is handed in.
"""

from __future__ import annotations

from functools import cache, cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from runner.language.budget import Budget, too_large
from runner.language.constructors import Constructors, dtype_name
from runner.language.elementwise import Elementwise
from runner.language.libraries import Library, NumpyLibrary, TorchLibrary
from runner.language.limits import DEFAULT, Limits
from runner.language.literals import from_data, unreal
from runner.language.operators import Operators
from runner.language.parts import Parts
from runner.language.promotion import kind
from runner.language.reductions import Reductions
from runner.language.shaping import Shaping
from runner.language.signatures import FUNCTION_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from runner.language.arithmetic import Value

__all__ = ["FUNCTION_NAMES", "NumpyArrays", "TorchArrays", "numpy_arrays"]

#: functions whose result does not depend on a tensor that they are given
_MAKERS = ("full", "zeros", "ones", "arange", "linspace", "eye", "random")


class NumpyArrays:
    """The array library of the reference. `limits` bound what is made outside of expressions."""

    def __init__(self, limits: Limits = DEFAULT) -> None:
        """Take NumPy."""
        self._library: Library = NumpyLibrary()
        self._limits = limits
        self._budget = Budget(limits)

    @cached_property
    def _operators(self) -> Operators:
        return Operators(self._library, self._budget)

    @cached_property
    def _parts(self) -> Parts:
        return Parts(self._operators)

    @cached_property
    def _shaping(self) -> Shaping:
        return Shaping(self._operators, self._parts)

    @cached_property
    def _copying(self) -> dict[str, Callable[..., Any]]:
        """The functions that make new tensors from tensors, by name."""
        elementwise = Elementwise(self._operators).table()
        reductions = Reductions(
            self._operators, elementwise["minimum"], elementwise["maximum"]
        ).table()
        return {**elementwise, **reductions, **self._shaping.table()}

    @cached_property
    def _functions(self) -> dict[str, Callable[..., Any]]:
        copying = self._copying
        made = {**Constructors(self._operators).table(), **copying}
        return {
            **{f"{name}()": function for name, function in made.items()},
            **self._parts.table(),
            **self._shaping.views(),
            **self._operators.table(),
            "@": copying["matmul"],
        }

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return what compiled expressions call: functions as `name()`, and guarded operators."""
        return dict(self._functions)

    def array(self, data: Value, dtype: str) -> Value:
        """Make an array from a number, a nested list or an array; the result is a fresh copy.

        ValueError where the data is not rectangular or does not fit the dtype.
        """
        name = dtype_name(dtype)
        if self._library.is_array(data):
            if kind(self._library.name(data)) == "complex" and kind(name) != "complex":
                raise ValueError(unreal(name))
            return self._library.cast(self._library.wrapped(data), name)
        return self._library.from_numpy(from_data(data, name, self._limits.max_elements))

    def copy(self, value: Value) -> Value:
        """Return an array that shares no memory with `value`; dense strides are kept."""
        return self._library.copy(value)

    def is_array(self, value: object) -> bool:
        """Return whether `value` is an array of this library."""
        return self._library.is_array(value)

    def dtype(self, value: Value) -> str:
        """Return the name of the dtype of an array."""
        return self._library.name(value)

    def reshaped(self, value: Value, shape: tuple[int, ...]) -> Value:
        """Return `value` in another shape; a single element fills the shape.

        ValueError where the elements do not fill it, or where it is too large.
        """
        count = prod(shape)
        if count > self._limits.max_elements:
            raise ValueError(too_large(count, self._limits.max_elements))
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
    def _copying(self) -> dict[str, Callable[..., Any]]:
        host = self._host._copying  # noqa: SLF001 -- its own class
        return {
            name: self._by_either(function, host[name], is_product=name == "matmul")
            for name, function in super()._copying.items()
        }

    def _by_either(
        self, function: Callable[..., Any], host: Callable[..., Any], *, is_product: bool
    ) -> Callable[..., Any]:
        library = self._library

        def leaves(value: Value) -> bool:
            if isinstance(value, list | tuple):
                return any(leaves(item) for item in value)
            return library.is_array(value) and library.must_leave(
                library.name(value), is_product=is_product
            )

        def lowered(value: Value) -> Value:
            if isinstance(value, list | tuple):
                return [lowered(item) for item in value]
            return library.to_numpy(value) if library.is_array(value) else value

        def either(*arguments: Value, **keywords: Value) -> Value:
            if not any(leaves(value) for value in (*arguments, *keywords.values())):
                return function(*arguments, **keywords)
            made = host(
                *(lowered(value) for value in arguments),
                **{name: lowered(value) for name, value in keywords.items()},
            )
            return library.from_numpy(made) if self._host.is_array(made) else made

        return either
