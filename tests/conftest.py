"""What all tests share: where they import from, and one launcher with warm workers on Gloo.

What Hypothesis generates is the same in every ordinary run, so that a test which fails fails again;
`pytest --hypothesis-profile explore` looks at what no run has looked at before.

The root of the checkout stands last on the path, for `benchmarks`, which is no part of the package:
last, so that the tests run what is installed and not what lies beside them. And no test may depend
on whether it runs in CI, where a run writes annotations and bless writes nothing, nor on whether a
shell has started it behind a `&`: there interrupts are ignored, by every process begun from there.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

from torch_scenarios.cli import ONE_THREAD

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from warm_hosts import WarmHosts

    from torch_scenarios.execution import Launcher

# as the command does, before NumPy is imported: a process with threads, also OpenBLAS's, should
# not be forked; and they spin for work, which on a busy machine took 50 times the time of a product
os.environ.setdefault(*ONE_THREAD)

sys.path.append(str(Path(__file__).parents[1]))
os.environ.pop("GITHUB_ACTIONS", None)
os.environ.pop("CI", None)
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")  # pytest imports readline, which sets it for processes, unseen by Python
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# an example has no time limit of its own: on a busy machine one of a millisecond took half a second
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ordinary", UNTIMED, derandomize=True)
settings.register_profile("explore", UNTIMED, derandomize=False, print_blob=True)
settings.load_profile("ordinary")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="run the tests that take minutes too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes minutes unless it is asked for; the head of a session says so."""
    if config.getoption("--nightly"):
        return
    left_out = [item for item in items if item.get_closest_marker("nightly") is not None]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item.get_closest_marker("nightly") is None]


@pytest.fixture(autouse=True)
def _nothing_was_proved_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on what the checkout keeps of earlier checks: some change the semantics.

    What is not a regular file is neither read nor written.
    """
    monkeypatch.setattr("torch_scenarios.pipeline.history.PROVED", os.devnull)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the collector away from what is collected: a fifth of that time, and half of the tests'.

    What collection makes is kept to the end, so that to look for garbage in it finds none.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


def pytest_report_header(config: pytest.Config) -> str | None:
    return (
        None
        if config.getoption("--nightly")
        else "tests marked nightly are left out: --nightly runs them too, as .ci/nightly does"
    )


@pytest.fixture
def forkable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count no thread that an earlier test, or pytest-xdist, has left in this process."""
    count = threading.active_count
    before = count()
    monkeypatch.setattr(threading, "active_count", lambda: count() - before + 1)


@pytest.fixture(scope="session")
def forked_hosts() -> Iterator[WarmHosts]:
    """Fork the hosts of launchers in this process from one that has imported torch, from now on.

    What it returns makes commands, as processes of their own, do the same.
    """
    from warm_hosts import WarmHosts

    hosts = WarmHosts()
    with mock.patch("torch_scenarios.execution.launcher.start_host", hosts.start):
        yield hosts
    hosts.close()


@pytest.fixture(scope="session")
def launcher(forked_hosts: WarmHosts) -> Iterator[Launcher]:
    """Return a launcher on Gloo: torch is imported once for all tests that run scenarios on it."""
    from torch_scenarios.execution import Launcher, LaunchOptions

    with Launcher(LaunchOptions(backend="gloo")) as started:
        yield started
