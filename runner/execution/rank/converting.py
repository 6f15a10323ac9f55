"""The copies of a rank become the values of a trace: NumPy arrays, when the account is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from runner.execution.rank.values import is_large

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
#: dtypes that every device stacks; others come one by one
STACKED = ("float16", "float32", "float64", "int32", "int64", "uint8", "bool", "complex64")
#: small tensors that are brought from a device at once
TOGETHER = 64


class FromDevice:
    """Brings tensors to the host on a stream of its own.

    The account of a rank is given while its stream hangs: what is copied there would wait for ever
    behind the call that hangs, although the tensor itself has been ready for long.
    """

    def __init__(self, torch: ModuleType, device: Any) -> None:  # noqa: ANN401 -- torch.device
        """Make the stream; nothing is copied yet."""
        self._torch = torch
        self._cuda: Any = torch.cuda
        self._device = device
        self._stream = self._cuda.Stream(device=device)

    def __call__(self, tensors: list[Any]) -> Any:  # noqa: ANN401 -- torch.Tensor
        """Return tensors of one dtype and shape, stacked on the host.

        Waits for their copy, and for nothing else on the device.
        """
        with self._cuda.device(self._device), self._cuda.stream(self._stream):
            return (self._torch.stack(tensors) if tensors[1:] else tensors[0][None]).cpu()


class Converter:
    """Makes NumPy arrays of tensors, wherever they stand in a value; the rest stays as it is."""

    def __init__(
        self, torch: ModuleType, to_host: Callable[[list[Any]], Any] | None = None
    ) -> None:
        """Convert tensors of the host; others `to_host` stacks there, of one dtype and shape."""
        self._tensor: Any = torch.Tensor
        self._to_host = to_host
        self._carried = {
            getattr(torch, name): (getattr(torch, carrier), np.dtype(extension))
            for name, (carrier, extension) in EXTENSIONS.items()
            if hasattr(torch, name)
        }
        self._stacked = {getattr(torch, name) for name in STACKED}

    def __call__(self, value: Any) -> Any:  # noqa: ANN401 -- a held value has any type
        """Return the value of a trace; an array may share the tensor's memory."""
        if isinstance(value, self._tensor):
            tensor = value.detach() if value.requires_grad else value
            return self._array(tensor if self._to_host is None else self._to_host([tensor])[0])
        if isinstance(value, list):
            brought = self._together(value)
            return [
                brought[place] if place in brought else self(item)
                for place, item in enumerate(value)
            ]
        if isinstance(value, dict):
            return {key: self(item) for key, item in value.items()}
        return list(value) if isinstance(value, range) else value

    def _array(self, tensor: Any) -> Any:  # noqa: ANN401 -- torch.Tensor
        carried = self._carried.get(tensor.dtype)
        if carried is None:
            return tensor.resolve_conj().numpy()
        carrier, extension = carried
        return tensor.contiguous().view(carrier).numpy().view(extension)

    def _together(self, values: list[Any]) -> dict[int, Any]:
        """Bring the small tensors among values from the device, many at a time: place -> array."""
        brought: dict[int, Any] = {}
        if self._to_host is None:
            return brought
        alike: dict[Any, list[int]] = {}
        for place, value in enumerate(values):
            if isinstance(value, self._tensor) and value.dtype in self._stacked:
                alike.setdefault((value.dtype, value.shape, is_large(value)), []).append(place)
        for (_, _, large), places in alike.items():
            count = 1 if large else TOGETHER
            for start in range(0, len(places), count):
                some = places[start : start + count]
                rows = self._array(self._to_host([values[place].detach() for place in some]))
                brought.update((place, rows[row, ...]) for row, place in enumerate(some))
        return brought
