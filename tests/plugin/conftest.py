"""Sessions of pytest within these tests load our plugin and no stranger's: most of their time.

A session in this process forgets the modules that it imports, and PyYAML's compiled part does not
bear to be imported twice: what a session collects with is imported here, before all of them.
"""

from __future__ import annotations

import pytest

import torch_scenarios.pipeline.run  # noqa: F401 -- see above


@pytest.fixture(autouse=True)
def our_plugin_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load by its entry point what every session would find by itself; `-n` asks for xdist."""
    if "pytester" in request.fixturenames:
        request.getfixturevalue("pytester")  # which forgets such variables, first
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p scenario -p xdist")
