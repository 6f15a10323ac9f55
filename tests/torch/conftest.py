"""What the tests on real Gloo share: a scenario's text in, its prediction and its run out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from torch_scenarios.execution import Launcher, LaunchOptions
from torch_scenarios.language import load
from torch_scenarios.model.groups import plan
from torch_scenarios.reference import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from warm_hosts import WarmHosts

    from torch_scenarios.model.plan import Plan
    from torch_scenarios.model.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysedCase:
    """A scenario's text, as far as it comes without a run."""

    plan: Plan
    predicted: Trace

    def run_on(self, launcher: Launcher) -> Trace:
        """Return what was observed."""
        return launcher.run(self.plan, self.predicted)


@pytest.fixture(autouse=True, scope="package")
def always_forked(forked_hosts: WarmHosts) -> None:
    """Fork the hosts of all tests here, but for commands that are no `WarmHosts.command`."""


@pytest.fixture(scope="package")
def launcher(forked_hosts: WarmHosts) -> Iterator[Launcher]:
    """Return a launcher of their own: many of these tests leave it without workers."""
    with Launcher(LaunchOptions(backend="gloo")) as started:
        started.reserve(4)
        yield started


@pytest.fixture
def analysed(tmp_path: Path) -> Callable[[str], AnalysedCase]:
    def analyse(text: str) -> AnalysedCase:
        path = tmp_path / "scenario.yaml"
        path.write_text(text, encoding="utf-8")
        (scenario,) = load(path)
        planned = plan(scenario)
        return AnalysedCase(plan=planned, predicted=simulate(planned))

    return analyse


@pytest.fixture
def observe(launcher: Launcher, analysed: Callable[[str], AnalysedCase]) -> Callable[[str], Trace]:
    return lambda text: analysed(text).run_on(launcher)
