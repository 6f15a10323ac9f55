"""Two hosts for the tests of a launch over several nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hosts import Hosts, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skip where this machine can have no network namespaces, with the reason."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def hosts(namespaces: None, tmp_path: Path) -> Iterator[Hosts]:
    """Return two hosts, which leave no process and no namespace behind."""
    del namespaces
    with Hosts(tmp_path) as both:
        yield both
