"""Scripts that are recorded, once a session each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from recordings import Recording

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    """Record scripts, the same one once a session."""
    found = Recording(tmp_path_factory.mktemp("records"))
    yield found
    found.close()
