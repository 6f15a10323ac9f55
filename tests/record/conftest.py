"""Scripts that are recorded, once a session each, forked from one that has imported torch."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

import pytest
from recordings import Recording, SharedLaunch

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def warm() -> Iterator[SharedLaunch]:
    """Return the process from which the ranks of all records are forked."""
    launch = SharedLaunch()
    yield launch
    launch.end()


@pytest.fixture(autouse=True, scope="package")
def always_forked(warm: SharedLaunch) -> Iterator[None]:
    """Fork the ranks of all records here, but for those of commands in processes of their own."""
    with (
        mock.patch("torch_scenarios.record.live.start_ranks", warm.start),
        mock.patch("torch_scenarios.record.function.WarmLaunch", return_value=warm),
        mock.patch("torch_scenarios.record.evidence.nemesis.WarmLaunch", return_value=warm),
    ):
        yield


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Record scripts, the same one once a session."""
    return Recording(tmp_path_factory.mktemp("records"))
