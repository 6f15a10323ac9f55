"""What only a process of its own shows: its start, its end, its streams. No torch."""

from __future__ import annotations

import pytest
from torch_free import without_torch

__all__ = ["without_torch"]


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.slow)
