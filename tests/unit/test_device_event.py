"""A device's event is asked by the CUDA runtime, and by torch where that has no answer."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from torch_scenarios.worker.device import HAPPENED, NOT_READY, DeviceEvent, cuda_runtime

LOST = "CUDA error: an illegal memory access was encountered"


class TorchEvent:
    """As much of torch's event as is asked."""

    cuda_event = 7

    def query(self) -> bool:
        """Raise what torch raises once a device is lost."""
        raise RuntimeError(LOST)


def runtime(said: int) -> Any:
    """Return a CUDA runtime whose events all say one thing; it keeps what was called."""
    calls: list[str] = []

    def event_query(event: Any) -> int:
        assert event.value == 7
        calls.append("query")
        return said

    return SimpleNamespace(
        cudaEventQuery=event_query, cudaGetLastError=lambda: calls.append("clear"), calls=calls
    )


def test_an_event_that_has_happened_is_known_without_torch() -> None:
    assert DeviceEvent(TorchEvent(), runtime(HAPPENED)).query()


def test_an_event_that_has_not_happened_leaves_no_error_behind() -> None:
    found = runtime(NOT_READY)
    assert not DeviceEvent(TorchEvent(), found).query()
    assert found.calls == ["query", "clear"]


def test_torch_says_what_went_wrong_on_a_device() -> None:
    with pytest.raises(RuntimeError, match="illegal memory access"):
        DeviceEvent(TorchEvent(), runtime(700)).query()


def test_without_a_shared_runtime_torch_is_asked() -> None:
    torch = ModuleType("torch")
    torch.version = SimpleNamespace(cuda=None)  # type: ignore[attr-defined]
    assert cuda_runtime(torch) is None
    torch.version = SimpleNamespace(cuda="99.0")  # type: ignore[attr-defined]
    assert cuda_runtime(torch) is None
    with pytest.raises(RuntimeError):
        DeviceEvent(TorchEvent(), None).query()
