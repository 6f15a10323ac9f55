"""The launch that a session shares, with a launcher that starts nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import pytest
from msgspec.structs import replace

from torch_scenarios.errors import LaunchError
from torch_scenarios.execution import LaunchOptions
from torch_scenarios.language import load
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.pytest_plugin import items as warm
from torch_scenarios.pytest_plugin.items import report_of, summary_of

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.model.plan import Plan
    from torch_scenarios.model.trace import Trace
    from torch_scenarios.pipeline.results import Analysis

YAML = "world_size: 2\ntensors: {x: [1]}\nsteps:\n  - all_reduce: {tensor: x}\n"


class Pretended:
    """A launcher whose runs are as predicted, or raise what they are told to."""

    raising: BaseException | None = None
    made: list[Pretended]

    def __init__(self, options: LaunchOptions) -> None:
        """Start nothing."""
        self.options = options
        self.open = False
        self.ran = 0
        self.made.append(self)

    def __enter__(self) -> Self:
        """Be open."""
        self.open = True
        return self

    def __exit__(self, *_: object) -> None:
        """Be closed."""
        self.open = False

    def reserve(self, world_size: int) -> None:
        """Keep the size."""
        self.size = world_size

    def run(self, plan: Plan, predicted: Trace) -> Trace:
        """Do as predicted."""
        del plan
        self.ran += 1
        if Pretended.raising is not None:
            raise Pretended.raising
        return replace(predicted, backend="gloo")


@pytest.fixture(autouse=True)
def launchers(monkeypatch: pytest.MonkeyPatch) -> list[Pretended]:
    """Return the launchers that are made."""
    Pretended.raising, Pretended.made = None, []
    monkeypatch.setattr(warm, "Launcher", Pretended)
    return Pretended.made


@pytest.fixture
def analysis(tmp_path: Path) -> Analysis:
    path = tmp_path / "sum.yaml"
    path.write_text(YAML)
    return analyse(load(path)[0])


def test_nothing_starts_before_a_scenario_does(launchers: list[Pretended]) -> None:
    shared = warm.SessionLauncher(LaunchOptions())
    shared.close()
    assert launchers == []


def test_one_launcher_serves_all_and_is_closed(
    launchers: list[Pretended], analysis: Analysis
) -> None:
    shared = warm.SessionLauncher(LaunchOptions(backend="gloo"))
    shared.begin(())
    assert [shared.run(analysis).verdict.status for _ in range(3)] == ["PASSED"] * 3
    (only,) = launchers
    assert (only.ran, only.open, only.options.backend) == (3, True, "gloo")
    shared.close()
    assert not only.open


def test_an_interrupted_run_spoils_its_launcher_alone(
    launchers: list[Pretended], analysis: Analysis
) -> None:
    shared = warm.SessionLauncher(LaunchOptions())
    Pretended.raising = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        shared.run(analysis)
    Pretended.raising = None
    assert shared.run(analysis).verdict.status == "PASSED"
    assert [each.open for each in launchers] == [False, True]


def test_an_environment_without_hope_is_not_tried_for_every_item(
    launchers: list[Pretended], analysis: Analysis
) -> None:
    shared = warm.SessionLauncher(LaunchOptions())
    Pretended.raising = LaunchError("no GPU here")
    results = [shared.run(analysis) for _ in range(5)]
    assert [each.verdict.status for each in results] == ["INCONCLUSIVE"] * 5
    assert launchers[0].ran == 3
    assert summary_of(results[-1]) == "the environment, not the scenario: no GPU here"
    assert "no GPU here" in report_of(results[-1])


def test_what_starts_in_between_gives_new_hope(
    launchers: list[Pretended], analysis: Analysis
) -> None:
    shared = warm.SessionLauncher(LaunchOptions())
    for error in (LaunchError("no port"), LaunchError("no port"), None, LaunchError("no port")):
        Pretended.raising = error
        shared.run(analysis)
    Pretended.raising = None
    assert shared.run(analysis).verdict.status == "PASSED"
    assert launchers[0].ran == 5
