"""What an executor's array library must offer: the seam between evaluation and NumPy or torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Arrays(Protocol):
    """The array library of one executor. Dtypes are named as torch names them."""

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return the functions of the expression language under `name()`, freshly copied."""

    def array(self, data: Any, dtype: str) -> Any:  # noqa: ANN401
        """Make an array from a number, a nested list or an array; the result is a fresh copy."""

    def copy(self, value: Any) -> Any:  # noqa: ANN401
        """Return an array that shares no memory with `value` and keeps its dtype and strides."""

    def is_array(self, value: object) -> bool:
        """Return whether `value` is an array of this library."""

    def dtype(self, value: Any) -> str:  # noqa: ANN401
        """Return the name of the dtype of an array."""

    def reshaped(self, value: Any, shape: tuple[int, ...]) -> Any:  # noqa: ANN401
        """Return `value` in another shape; a single element fills the shape."""
