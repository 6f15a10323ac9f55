"""A fixture for folders whose tests need no torch."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def without_torch(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that starts ranks, and the first one of a process that imports torch itself."""
    starts = request.node.get_closest_marker("torch") or "launcher" in request.fixturenames
    assert not starts, "it starts processes on torch: it belongs to tests/torch"
    before = "torch" in sys.modules
    yield
    # what stands in for torch comes of no file, and is still there where `monkeypatch` is older
    imports_torch = getattr(sys.modules.get("torch"), "__file__", None) is not None
    assert before or not imports_torch, "it imports torch: it belongs to tests/torch"
