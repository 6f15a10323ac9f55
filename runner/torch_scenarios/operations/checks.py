"""What operations refuse before a call, and how they reduce."""

from __future__ import annotations

from functools import cache
from functools import reduce as fold
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from torch_scenarios.expressions.values import Undefined
from torch_scenarios.operations.base import Collective, Entry, PremulSum, Refusal, dtype_name

# The reduce ops on NumPy arrays: exact where torch is exact, bounded where the order is open.
#
# Integers wrap in their width. Floats are reduced in float64 (complex128) and rounded once to the
# dtype. Semantics of each op: `torch.distributed.ReduceOp`.

#: arrays of one shape and dtype: a sequence, or stacked in one array
Parts: TypeAlias = Any

#: bytes of a stack of which all partial results may be kept
SMALL = 2**20

BITWISE = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}
ORDERED = {"min": np.minimum, "max": np.maximum}


def reduce_parts(op: str | PremulSum, parts: Parts) -> NDArray[Any] | Undefined:
    """Combine same-shaped arrays of one dtype, element by element, in that dtype.

    They are a list, or stacked in one array `[n, *shape]`; the first two are combined first.

    `min` and `max` over a NaN are undefined: what a backend keeps depends on the order
    (measured on Gloo: NaN or a number, by the rank that holds it).

    >>> reduce_parts("sum", [np.array([1, 2]), np.array([10, 20])])
    array([11, 22])
    >>> reduce_parts("max", [np.array([1.0]), np.array([np.nan])]).cause
    'max over a NaN'
    """
    first = parts[0]
    if op in ORDERED:
        if first.dtype.kind == "c":
            return Undefined(cause=f"{op} of complex numbers")
        whole = [parts] if isinstance(parts, np.ndarray) else parts
        if any(is_inexact(part) and bool(np.isnan(wide(part)).any()) for part in whole):
            return Undefined(cause=f"{op} over a NaN")
        return np.asarray(_fold(ORDERED[str(op)], parts)).astype(first.dtype)
    if op in BITWISE:
        if is_inexact(first):
            return Undefined(cause=f"{op} of {first.dtype}")
        return np.asarray(_fold(BITWISE[str(op)], parts)).astype(first.dtype)
    with np.errstate(all="ignore"):
        return _arithmetic(op, parts)


def _fold(combine: Any, parts: Any) -> Any:
    """Combine arrays from the first to the last; of a small stack all steps are one call."""
    if isinstance(parts, np.ndarray) and parts.nbytes <= SMALL:
        return combine.accumulate(parts, axis=0)[-1]
    return fold(combine, parts)


def _arithmetic(op: str | PremulSum, parts: Parts) -> NDArray[Any]:
    dtype, inexact = parts[0].dtype, is_inexact(parts[0])
    if dtype == np.bool_:
        combine = np.logical_and if op == "product" else np.logical_or
        return np.asarray(_fold(combine, parts))
    wider: Any = wide(parts) if isinstance(parts, np.ndarray) else [wide(part) for part in parts]
    if op == "product":
        return np.asarray(_fold(np.multiply, wider)).astype(dtype)
    if isinstance(op, PremulSum):
        factor = op.factor if inexact else int(op.factor)
        return np.asarray(fold(np.add, [part * factor for part in wider])).astype(dtype)
    total = np.asarray(_fold(np.add, wider))
    if op == "avg":
        total = total / len(parts) if inexact else total // len(parts)
    return total.astype(dtype)


def is_inexact(array: NDArray[Any]) -> bool:
    """Return whether the dtype rounds: floats, complex, bfloat16 and the float8s."""
    return array.dtype.kind in "fc" or (
        array.dtype.kind == "V" and dtype_name(array.dtype).startswith(("bfloat", "float8"))
    )


def wide(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array in the widest dtype of its kind, in which a reduction is computed.

    >>> wide(np.zeros(1, np.float32)).dtype.name
    'float64'
    """
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    if is_inexact(array):
        return array.astype(np.float64)
    return array.astype(np.uint64 if array.dtype.kind == "u" else np.int64)


@cache
def epsilon(dtype: np.dtype[Any]) -> float:
    """Return the spacing of the dtype at 1."""
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


# What torch refuses at the call, stated once for the operations that share it.
#
# Each check takes an entry and gives a :class:`Refusal` or None, so that `or` joins them. They
# follow `torch.distributed.distributed_c10d` (`_check_single_tensor`, `_check_tensor_list`,
# `_ensure_all_tensors_same_dtype`) and the size checks that the backends share.


def refuse_argument(message: str, about: str | None = None) -> Refusal:
    """Return the refusal of an argument that is wrong in itself: `about` is its name."""
    return Refusal(kind="invalid_argument", message=message, about=about)


def refuse_shape(message: str, about: str | None = None) -> Refusal:
    """Return the refusal of sizes that do not fit each other within one call."""
    return Refusal(kind="shape_mismatch", message=message, about=about)


def refuse_missing(entry: Entry, *names: str) -> Refusal | None:
    """Refuse a tensor that has no value on this rank (TypeError in torch)."""
    for name in names:
        if holds_none(entry[name]):
            return refuse_none(name)
    return None


def refuse_none(name: str, what: str | None = None) -> Refusal:
    """Return the refusal of the argument `name` that has no value on this rank."""
    message = f"{what or name} is None on this rank"
    return Refusal(kind="invalid_argument", message=message, lacks=name)


def holds_none(value: Any) -> bool:
    """Return whether a value, or anything in a nested list, is None."""
    if isinstance(value, list):
        return any(holds_none(item) for item in value)
    return value is None


def refuse_mixed_dtypes(entry: Entry, *names: str) -> Refusal | None:
    """Refuse tensors of several dtypes in one call (ValueError in torch)."""
    return _refuse_mixed({array.dtype: array.dtype for array in _arrays(entry, names)})


def refuse_mixed_elements(entry: Entry, *names: str) -> Refusal | None:
    """Refuse tensors of several element types in one coalesced call (ValueError in torch).

    A complex64 counts as its element, float32; a complex128 counts as itself, so that it cannot
    stand beside a float64 (`_ensure_all_tensors_same_dtype`, torch 2.6 to 2.13). Calls that are not
    coalesced refuse float32 beside complex64 later, in the backend.
    """
    element = np.dtype(np.float32)
    return _refuse_mixed(
        {
            array.dtype: element if array.dtype == np.complex64 else array.dtype
            for array in _arrays(entry, names)
        }
    )


def _arrays(entry: Entry, names: tuple[str, ...]) -> list[Any]:
    return [array for name in names for array in arrays_in(entry[name])]


def _refuse_mixed(counted: dict[np.dtype[Any], np.dtype[Any]]) -> Refusal | None:
    """Refuse dtypes that count as more than one."""
    if len(set(counted.values())) < 2:
        return None
    found = ", ".join(sorted(map(str, counted)))
    return refuse_argument(f"tensors of different dtypes in one call: {found}")


def arrays_in(value: Any) -> list[Any]:
    """Return the arrays in a tensor, a list, a list of lists or None."""
    if value is None:
        return []
    if isinstance(value, list):
        return [array for item in value for array in arrays_in(item)]
    return [value]


def refuse_length(entry: Entry, name: str) -> Refusal | None:
    """Refuse a list that has not one item for each member."""
    value = entry[name]
    if isinstance(value, list) and len(value) == entry.size:
        return None
    given = len(value) if isinstance(value, list) else "no list"
    message = f"{name} needs {entry.size} items, one for each member: {given} given"
    return refuse_argument(message, name)


def refuse_other_shapes(entry: Entry, name: str, like: str) -> Refusal | None:
    """Refuse a list whose items have not the shape of the tensor `like`."""
    wanted = tuple(entry[like].shape)
    for index, item in enumerate(entry[name]):
        if tuple(item.shape) != wanted:
            message = f"{name}[{index}] has shape {list(item.shape)}, {like} has {list(wanted)}"
            return refuse_shape(message, name)
    return None


def refuse_whole(entry: Entry, whole: str) -> Refusal | None:
    """Refuse None, mixed dtypes, and an `output` and `input` of which one is not n of the other.

    `whole` names the one that holds a part of each member: end to end along its first dimension, or
    along a dimension of its own, as `all_gather_into_tensor` documents both.
    """
    refusal = refuse_missing(entry, "output", "input")
    if refusal is not None:
        return refusal
    output, given = entry["output"], entry["input"]
    if dtype_name(output.dtype) != dtype_name(given.dtype):
        message = f"output is {output.dtype}, input {given.dtype}"
        return Refusal(kind="dtype_mismatch", message=message)
    part = "input" if whole == "output" else "output"
    of_one, size = tuple(entry[part].shape), entry.size
    joined = (size * of_one[0], *of_one[1:]) if of_one else (size,)
    if tuple(entry[whole].shape) in {joined, (size, *of_one)}:
        return None
    return refuse_shape(
        f"{whole} has shape {list(entry[whole].shape)}; {size} {part}s of shape {list(of_one)} "
        f"make {list(joined)}"
    )


def refuse_op(entry: Entry, name: str) -> Refusal | None:
    """Refuse the order, the product and the bits of complex numbers, and the bits of floats.

    The former torch refuses itself (`supports_complex`), the latter Gloo ("Cannot use ReduceOp.BAND
    with non-integral dtype"); what it refuses of the float8s is any reduction.
    """
    op = entry["op"]
    if not isinstance(op, str):
        return None
    arrays = arrays_in(entry[name])
    denied = op in ORDERED or op in BITWISE or op == "product"
    if denied and any(array.dtype.kind == "c" for array in arrays):
        return refuse_argument(f"{op} is not for complex tensors", "op")
    floats = [array for array in arrays if is_inexact(array) and array.dtype.itemsize > 1]
    if op in BITWISE and floats:
        message = f"{op} is not for tensors of {dtype_name(floats[0].dtype)}"
        return Refusal(kind="invalid_argument", message=message, about="op", late=True)
    return None


def uneven(*arrays: Any) -> frozenset[str]:
    """Return the kind that Gloo raises where tensors of one call differ in shape; else nothing."""
    different = len({tuple(array.shape) for array in arrays}) > 1
    return frozenset({"shape_mismatch"} if different else ())


def refuse_list_at_root(
    operation: Collective, entry: Entry, name: str, where: str
) -> Refusal | None:
    """Refuse what a list of tensors that only the root passes can have wrong (gather, scatter).

    A bad root, a list off the root (`where` says which role that is), none or a misfitting one on
    it.
    """
    listed = entry[name]
    refusal = (
        refuse_missing(entry, "tensor")
        or (refuse_missing(entry, name) if listed else None)
        or refuse_mixed_dtypes(entry, "tensor", name)
        or operation.refuse_root(entry)
    )
    if refusal is not None:
        return refusal
    if not operation.is_root(entry):
        return refuse_argument(f"{name} is given off the {where}", name) if listed else None
    if not listed:
        return refuse_argument(f"{name} is missing on the {where}", name)
    return refuse_length(entry, name) or refuse_other_shapes(entry, name, "tensor")
