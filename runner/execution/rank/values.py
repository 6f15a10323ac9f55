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
        return (value.detach() if value.requires_grad else value).clone()
    if isinstance(value, list):
        return [snapshot(torch, item) for item in value]
    return copy.deepcopy(value)


class FromDevice:
    """Brings tensors to the host on a stream of its own.

    The account of a rank is given while its stream hangs: what is copied there would wait for ever
    behind the call that hangs, although the tensor itself has been ready for long.
    """

    def __init__(self, torch: ModuleType, device: Any) -> None:  # noqa: ANN401 -- torch.device
        """Make the stream; nothing is copied yet."""
        self._cuda: Any = torch.cuda
        self._device = device
        self._stream = self._cuda.Stream(device=device)

    def __call__(self, tensor: Any) -> Any:  # noqa: ANN401 -- torch.Tensor
        """Return a copy on the host; waits for the copy, and for nothing else on the device."""
        with self._cuda.device(self._device), self._cuda.stream(self._stream):
            return tensor.cpu()


def converter(
    torch: ModuleType, to_host: Callable[[Any], Any] | None = None
) -> Callable[[Any], Any]:
    """Return the function that makes NumPy arrays of tensors, wherever they stand in a value.

    `to_host` brings a tensor to the host; it is there already if left out.
    """
    table = {
        getattr(torch, name): (getattr(torch, carrier), np.dtype(extension))
        for name, (carrier, extension) in EXTENSIONS.items()
        if hasattr(torch, name)
    }

    def convert(value: Any) -> Any:  # noqa: ANN401 -- a held value has any type
        if isinstance(value, torch.Tensor):
            tensor = value.detach() if to_host is None else to_host(value.detach())
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
