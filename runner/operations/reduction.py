"""The reduce ops on NumPy arrays: exact where torch is exact, bounded where the order is open.

Integers wrap in their width. Floats are reduced in float64 (complex128) and rounded once to the
dtype. Semantics of each op: `torch.distributed.ReduceOp`.
"""

from __future__ import annotations

from functools import reduce as fold
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.operations.entries import PremulSum, Undefined, dtype_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

#: dtype -> (rtol, atol) within which two values are equal; other dtypes are exact
TOLERANCES = {
    "float16": (2.0**-10, 1e-5),
    "bfloat16": (2.0**-7, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}
BITWISE = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}
ORDERED = {"min": np.minimum, "max": np.maximum}


def reduced(op: str | PremulSum, parts: Sequence[NDArray[Any]]) -> NDArray[Any] | Undefined:
    """Combine same-shaped arrays of one dtype, element by element, in that dtype.

    `min` and `max` over a NaN are undefined: what a backend keeps depends on the order
    (measured on Gloo: NaN or a number, by the rank that holds it).
    """
    first = parts[0]
    if op in ORDERED:
        if first.dtype.kind == "c":
            return Undefined(cause=f"{op} of complex numbers")
        if any(is_inexact(part) and bool(np.isnan(wide(part)).any()) for part in parts):
            return Undefined(cause=f"{op} over a NaN")
        return np.asarray(fold(ORDERED[str(op)], parts)).astype(first.dtype)
    if op in BITWISE:
        if is_inexact(first):
            return Undefined(cause=f"{op} of {first.dtype}")
        return np.asarray(fold(BITWISE[str(op)], parts)).astype(first.dtype)
    with np.errstate(all="ignore"):
        return _arithmetic(op, parts)


def _arithmetic(op: str | PremulSum, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    dtype = parts[0].dtype
    if dtype == np.bool_:
        combine = np.logical_and if op == "product" else np.logical_or
        return np.asarray(fold(combine, parts))
    wider = [wide(part) for part in parts]
    if op == "product":
        return np.asarray(fold(np.multiply, wider)).astype(dtype)
    if isinstance(op, PremulSum):
        factor = op.factor if is_inexact(parts[0]) else int(op.factor)
        return np.asarray(fold(np.add, [part * factor for part in wider])).astype(dtype)
    total = np.asarray(fold(np.add, wider))
    if op == "avg":
        total = total / len(parts) if is_inexact(parts[0]) else total // len(parts)
    return total.astype(dtype)


def is_inexact(array: NDArray[Any]) -> bool:
    """Return whether the dtype rounds: floats, complex, bfloat16 and the float8s."""
    return array.dtype.kind in "fc" or (
        array.dtype.kind == "V" and dtype_name(array.dtype).startswith(("bfloat", "float8"))
    )


def wide(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array in the widest dtype of its kind, in which a reduction is computed."""
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    if is_inexact(array):
        return array.astype(np.float64)
    return array.astype(np.uint64 if array.dtype.kind == "u" else np.int64)


def epsilon(dtype: np.dtype[Any]) -> float:
    """Return the spacing of the dtype at 1."""
    import ml_dtypes  # noqa: PLC0415 -- finfo of NumPy does not know bfloat16

    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
