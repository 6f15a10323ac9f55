"""What only a process of its own shows: its start, its end, its streams. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from torch_free import without_torch

from torch_scenarios.execution.letters import Secret
from torch_scenarios.execution.local_store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["without_torch"]


@pytest.fixture
def local_store() -> Iterator[LocalStore]:
    """Return the store of a launch on this machine, open while a test runs."""
    found = LocalStore(Secret.random())
    found.start()
    yield found
    found.close()


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.slow)
