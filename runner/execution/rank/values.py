"""Snapshots of what a rank holds, and their conversion into the values of a trace."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

#: dtypes that NumPy lacks: torch's name -> an integer type of the same width, NumPy's extension
EXTENSIONS: dict[str, tuple[str, Any]] = {
    "bfloat16": ("int16", ml_dtypes.bfloat16),
    "float8_e4m3fn": ("uint8", ml_dtypes.float8_e4m3fn),
    "float8_e5m2": ("uint8", ml_dtypes.float8_e5m2),
    "float8_e4m3fnuz": ("uint8", ml_dtypes.float8_e4m3fnuz),
    "float8_e5m2fnuz": ("uint8", ml_dtypes.float8_e5m2fnuz),
}


def snapshot(torch: ModuleType, value: Any) -> Any:  # noqa: ANN401 -- a held value has any type
    """Return a copy that later steps cannot change: tensors are cloned, objects copied deeply."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, list):
        return [snapshot(torch, item) for item in value]
    return copy.deepcopy(value)


def converter(torch: ModuleType) -> Callable[[Any], Any]:
    """Return the function that makes NumPy arrays of tensors, wherever they stand in a value."""
    table = {
        getattr(torch, name): (getattr(torch, carrier), np.dtype(extension))
        for name, (carrier, extension) in EXTENSIONS.items()
        if hasattr(torch, name)
    }

    def convert(value: Any) -> Any:  # noqa: ANN401 -- a held value has any type
        if isinstance(value, torch.Tensor):
            tensor = value.detach().cpu()
            carried = table.get(tensor.dtype)
            if carried is None:
                return tensor.resolve_conj().numpy()
            carrier, extension = carried
            return tensor.contiguous().view(carrier).numpy().view(extension)
        if isinstance(value, list):
            return [convert(item) for item in value]
        if isinstance(value, dict):
            return {key: convert(item) for key, item in value.items()}
        if isinstance(value, range):
            return list(value)
        return value

    return convert
