"""Values as short text: `[3, 3]`, `[3, 3] int64`, `float32[4, 1024] 0, 1, 2, …, 4095`.

Small tensors are shown whole, with their dtype unless it is the language's default. Larger ones
show dtype, shape and some elements; one element that stands everywhere is shown once.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.nesting import DEFAULT_DTYPE
from runner.operations.entries import Undefined, dtype_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from runner.trace import Value

#: elements up to which a tensor is shown whole, and those shown of a larger one
MOST_ELEMENTS, FIRST = 16, 4

#: elements up to which it is looked whether all are the same
MOST_COMPARED = 1 << 16

#: characters of a list of tensors, of objects, of an exception's words
MOST_CHARACTERS = 160

_DIGITS = 7


class Texts:
    """Values as text; a value that many ranks hold is put into words once."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known: dict[tuple[Any, ...], str] = {}

    def all_of(self, values: Mapping[str, Value]) -> dict[str, str]:
        """Return each value as text."""
        return {name: self.of(value) for name, value in values.items()}

    def of(self, value: Value) -> str:
        """Return a tensor, a list of tensors, an object or an undefined value as text."""
        if isinstance(value, np.ndarray | np.generic):
            return self._tensor(np.asarray(value))
        if isinstance(value, Undefined):
            return f"undefined ({value.cause})"
        if isinstance(value, list) and any(isinstance(item, np.ndarray) for item in value):
            return shortened(f"[{', '.join(map(self.of, value))}]")
        return shortened(repr(value))

    def _tensor(self, value: NDArray[Any]) -> str:
        if value.size > MOST_ELEMENTS:
            return _summary(value)
        key = (value.dtype, value.shape, value.tobytes())
        known = self._known.get(key)
        if known is None:
            name = dtype_name(value.dtype)
            suffix = "" if name == DEFAULT_DTYPE else f" {name}"
            known = self._known[key] = f"{_nested(_plain(value).tolist())}{suffix}"
        return known


def shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return a text of at most `most` characters, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _summary(value: NDArray[Any]) -> str:
    name = f"{dtype_name(value.dtype)}[{', '.join(map(str, value.shape))}]"
    flat = value.reshape(-1)
    if value.size <= MOST_COMPARED and bool((flat == flat[0]).all()):
        return f"{name} all {_number(_plain(flat[:1])[0].item())}"
    first, last = _plain(flat[:FIRST]).tolist(), _plain(flat[-1:]).tolist()
    return f"{name} {', '.join(map(_number, chain(first)))}, …, {_number(last[0])}"


def _plain(value: NDArray[Any]) -> NDArray[Any]:
    """Return an array whose items are Python's own numbers; wide enough for every small float."""
    return value if value.dtype.kind in "biufc" else value.astype(np.float64)


def _nested(value: Any) -> str:  # noqa: ANN401 -- a number, or a list of such
    if isinstance(value, list):
        return f"[{', '.join(map(_nested, value))}]"
    return _number(value)


def _number(value: complex) -> str:
    """Return a number as short as its dtype tells it: whole floats without a fraction."""
    if isinstance(value, int):
        return str(value)
    return f"{value:.{_DIGITS}g}"
