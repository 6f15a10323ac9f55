"""Hosts that are forked for tests: they are what a launcher takes for its own process."""

from __future__ import annotations

import pytest

from torch_scenarios.execution import Launcher, LaunchOptions

pytestmark = pytest.mark.torch


def test_a_host_leads_its_processes_from_the_moment_that_it_is_told_of() -> None:
    """A launcher ends the processes of a host by its id, at any moment."""
    for _ in range(20):
        with Launcher(LaunchOptions(backend="gloo")) as launcher:
            assert launcher.processes()  # those of its session
