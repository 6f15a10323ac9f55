"""What torch refuses at the call, stated once for the operations that share it.

Each check takes an entry and gives a :class:`Refusal` or None, so that `or` joins them. They follow
`torch.distributed.distributed_c10d` (`_check_single_tensor`, `_check_tensor_list`,
`_ensure_all_tensors_same_dtype`) and the size checks that the backends share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runner.operations.entries import Refusal, dtype_name
from runner.operations.reduction import BITWISE, ORDERED, is_inexact

if TYPE_CHECKING:
    from runner.operations.base import Collective
    from runner.operations.entries import Entry


def invalid(message: str) -> Refusal:
    """Return the refusal of an argument that is wrong in itself."""
    return Refusal(kind="invalid_argument", message=message)


def misfit(message: str) -> Refusal:
    """Return the refusal of sizes that do not fit each other within one call."""
    return Refusal(kind="shape_mismatch", message=message)


def absent(entry: Entry, *names: str) -> Refusal | None:
    """Refuse a tensor that has no value on this rank (TypeError in torch)."""
    for name in names:
        if holds_none(entry[name]):
            return invalid(f"{name} is None on this rank")
    return None


def holds_none(value: Any) -> bool:  # noqa: ANN401 -- an argument has any type
    """Return whether a value, or anything in a nested list, is None."""
    if isinstance(value, list):
        return any(holds_none(item) for item in value)
    return value is None


def mixed_dtypes(entry: Entry, *names: str) -> Refusal | None:
    """Refuse tensors of several dtypes in one call (ValueError in torch)."""
    return _mixed({array.dtype: array.dtype for array in _arrays(entry, names)})


def mixed_elements(entry: Entry, *names: str) -> Refusal | None:
    """Refuse tensors of several element types in one coalesced call (ValueError in torch).

    A complex64 counts as its element, float32; a complex128 counts as itself, so that it cannot
    stand beside a float64 (`_ensure_all_tensors_same_dtype`, torch 2.6 to 2.13). Calls that are not
    coalesced refuse float32 beside complex64 later, in the backend.
    """
    element = np.dtype(np.float32)
    return _mixed(
        {
            array.dtype: element if array.dtype == np.complex64 else array.dtype
            for array in _arrays(entry, names)
        }
    )


def _arrays(entry: Entry, names: tuple[str, ...]) -> list[Any]:
    return [array for name in names for array in arrays_in(entry[name])]


def _mixed(counted: dict[np.dtype[Any], np.dtype[Any]]) -> Refusal | None:
    """Refuse dtypes that count as more than one."""
    if len(set(counted.values())) < 2:  # noqa: PLR2004 -- one agrees
        return None
    found = ", ".join(sorted(map(str, counted)))
    return invalid(f"tensors of different dtypes in one call: {found}")


def arrays_in(value: Any) -> list[Any]:  # noqa: ANN401 -- an argument has any type
    """Return the arrays in a tensor, a list, a list of lists or None."""
    if value is None:
        return []
    if isinstance(value, list):
        return [array for item in value for array in arrays_in(item)]
    return [value]


def wrong_length(entry: Entry, name: str) -> Refusal | None:
    """Refuse a list that has not one item for each member."""
    value = entry[name]
    if isinstance(value, list) and len(value) == entry.size:
        return None
    given = len(value) if isinstance(value, list) else "no list"
    return invalid(f"{name} needs {entry.size} items, one for each member: {given} given")


def wrong_shapes(entry: Entry, name: str, like: str) -> Refusal | None:
    """Refuse a list whose items have not the shape of the tensor `like`."""
    wanted = tuple(entry[like].shape)
    for index, item in enumerate(entry[name]):
        if tuple(item.shape) != wanted:
            return misfit(
                f"{name}[{index}] has shape {list(item.shape)}, {like} has {list(wanted)}"
            )
    return None


def senseless_op(entry: Entry, name: str) -> Refusal | None:
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
        return invalid(f"{op} is not for complex tensors")
    floats = [array for array in arrays if is_inexact(array) and array.dtype.itemsize > 1]
    if op in BITWISE and floats:
        message = f"{op} is not for tensors of {dtype_name(floats[0].dtype)}"
        return Refusal(kind="invalid_argument", message=message, late=True)
    return None


def uneven(*arrays: Any) -> frozenset[str]:  # noqa: ANN401 -- arrays
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
        absent(entry, "tensor")
        or (absent(entry, name) if listed else None)
        or mixed_dtypes(entry, "tensor", name)
        or operation.refuse_root(entry)
    )
    if refusal is not None:
        return refusal
    if not operation.is_root(entry):
        return invalid(f"{name} is given off the {where}") if listed else None
    if not listed:
        return invalid(f"{name} is missing on the {where}")
    return wrong_length(entry, name) or wrong_shapes(entry, name, "tensor")
