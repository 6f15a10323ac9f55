"""Scripts that are recorded, once a session each."""

from __future__ import annotations

import pytest
from recordings import Recording


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Record scripts, the same one once a session."""
    return Recording(tmp_path_factory.mktemp("records"))
