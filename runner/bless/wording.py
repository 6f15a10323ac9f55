"""A value -> YAML: numbers and nested lists, the shortest that says the same.

`[3, 3]`, `0.1`, `[true, false]`, `{value: 7, shape: [1000]}` for what would be a long list of equal
numbers. Floats are written with the fewest digits that lie well within what the comparison allows
for their dtype; integers, booleans and narrow floats exactly. Expressions are not invented, but for
complex numbers, which YAML has none of.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import yaml

#: elements of one value that are written out; more belong into an expression
MOST = 256
#: characters of a list of equal numbers that are written out
LONG = 60

#: dtype -> how far a written number may be off, relatively: a tenth of the comparison's or less.
#: A dtype that is not here is written exactly.
_FREEDOM = {"float32": 2e-7, "float64": 1e-12, "complex64": 2e-7, "complex128": 1e-12}
_DIGITS = 17
_WHOLE = 1e15


class CannotWordError(Exception):
    """A value has no short form; the message says why, as the end of `x ...`."""


def worded(value: Any) -> str:  # noqa: ANN401 -- an array, a list of arrays or a plain object
    """Return a value as one line of flow YAML. Raises CannotWordError."""
    if isinstance(value, list | tuple) and any(_is_tensors(item) for item in value):
        return "[" + ", ".join(worded(item) for item in value) + "]"
    if isinstance(value, np.ndarray | np.generic):
        return _tensor(np.asarray(value))
    if isinstance(value, bool | int | float):
        return number(value)
    if isinstance(value, complex):
        return f'"{_complex(value, "complex128")}"'
    if isinstance(value, range):
        value = list(value)
    return plain(value)


def _is_tensors(value: Any) -> bool:  # noqa: ANN401
    if isinstance(value, list | tuple):
        return any(_is_tensors(item) for item in value)
    return isinstance(value, np.ndarray | np.generic)


def _tensor(array: np.ndarray[Any, Any]) -> str:
    if array.dtype.kind == "c" and not array.imag.any():
        array = array.real
    if array.size == 0:
        shape = list(array.shape)
        return "[]" if shape == [0] else f"{{shape: {shape}}}"
    text = _nested(array) if array.size <= MOST else None
    if text is not None and len(text) <= LONG:
        return text
    first = array.reshape(-1)[0]
    if array.ndim and array.dtype.kind != "c" and bool((array == first).all()):
        return f"{{value: {_item(first)}, shape: {list(array.shape)}}}"
    if text is None:
        message = f"has {array.size} elements: state them as an expression (at most {MOST} are "
        message += "written out)"
        raise CannotWordError(message)
    return text


def _nested(array: np.ndarray[Any, Any]) -> str:
    if array.ndim == 0:
        return _item(array[()])
    if array.dtype.kind == "c" and array.ndim == 1:
        # a number of its own would be text; a list of them is one expression
        return '"[' + ", ".join(_complex(item, array.dtype.name) for item in array) + ']"'
    return "[" + ", ".join(_nested(part) for part in array) + "]"


def _item(item: Any) -> str:  # noqa: ANN401 -- a NumPy scalar
    kind, name = item.dtype.kind, item.dtype.name
    if kind == "b":
        return number(bool(item))
    if kind in "iu":
        return number(int(item))
    if kind == "c":
        return f'"{_complex(item, name)}"'
    return number(_fewest(item, name))


def _fewest(item: Any, dtype: str) -> float:  # noqa: ANN401 -- a NumPy scalar
    """Return the number of fewest digits near a float."""
    exact = float(item)
    if not math.isfinite(exact):
        return exact
    freedom = _FREEDOM.get(dtype)
    for digits in range(1, _DIGITS):
        near = float(f"{exact:.{digits}g}")
        if freedom is None:
            if type(item)(near) == item:
                return near
        elif abs(near - exact) <= freedom * abs(exact):
            return near
    return exact


def _complex(item: Any, dtype: str) -> str:  # noqa: ANN401 -- a complex number
    part = np.float32 if dtype == "complex64" else np.float64
    real, imaginary = (
        number(_fewest(part(each), part.__name__)) for each in (item.real, item.imag)
    )
    if imaginary == "0":
        return real
    sign, size = ("-", imaginary[1:]) if imaginary.startswith("-") else ("+", imaginary)
    return f"{real} {sign} {size}j"


def number(value: float) -> str:
    """Return a boolean, an integer or a float as YAML 1.2 writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    if value == int(value) and abs(value) < _WHOLE:
        return str(int(value))
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def plain(value: Any) -> str:  # noqa: ANN401 -- YAML data
    """Return a plain object as one line of flow YAML. Raises CannotWordError."""
    try:
        text = yaml.safe_dump(
            _plain(value), default_flow_style=True, width=math.inf, allow_unicode=True
        )
    except yaml.YAMLError:
        message = f"is a {type(value).__name__}, which YAML cannot say"
        raise CannotWordError(message) from None
    return text.removesuffix("\n").removesuffix("\n...").strip()


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, list | tuple | range):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value
