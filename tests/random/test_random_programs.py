"""The reference's verdict and values on random programs are those of real Gloo.

`RANDOM_PROGRAMS=2000 pytest tests/random` is the long run; the ordinary one takes fifty.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from msgspec.structs import replace
from random_programs import programs

import torch_scenarios
from torch_scenarios.model.scenario import FinalExpectation

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.execution import Launcher
    from torch_scenarios.verdict import Verdict

COUNT = int(os.environ.get("RANDOM_PROGRAMS", "50"))

BOUNDED = settings(
    max_examples=COUNT // 2,
    deadline=None,
    derandomize=COUNT <= 100,
    database=None,
    # to shrink takes minutes of hanging programs: only where someone asks for it
    phases=(Phase.generate, Phase.shrink) if "SHRINK" in os.environ else (Phase.generate,),
    suppress_health_check=list(HealthCheck),
)

pytestmark = pytest.mark.torch


def judged(text: str, launcher: Launcher, folder: Path) -> Verdict:
    """Let the reference be the author: whatever it predicts, the run must show."""
    path = folder / "program.yaml"
    path.write_text(text)
    (scenario,) = torch_scenarios.load(path)
    prepared = torch_scenarios.plan(scenario)
    predicted = torch_scenarios.simulate(prepared)
    names = tuple(dict.fromkeys(diagnosis.name for diagnosis in predicted.diagnoses))
    stated = FinalExpectation(outcomes=(predicted.outcome,), diagnoses=names)
    scenario = replace(scenario, expect=stated)
    prepared = torch_scenarios.plan(scenario)
    observed = launcher.run(prepared, predicted)
    if observed.outcome in predicted.open:
        scenario = replace(scenario, expect=replace(stated, outcomes=(observed.outcome,)))
    return torch_scenarios.judge(scenario, predicted, observed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("random")


@given(text=programs(wrong=False))
@BOUNDED
def test_a_correct_program_holds_what_the_reference_says(
    text: str, launcher: Launcher, folder: Path
) -> None:
    verdict = judged(text, launcher, folder)
    assert verdict.predicted is not None
    assert verdict.predicted.diagnoses == (), text
    assert verdict.status == "PASSED", (text, [finding.prose for finding in verdict.findings])


@given(text=programs(wrong=True))
@BOUNDED
def test_a_broken_program_stands_where_the_reference_says(
    text: str, launcher: Launcher, folder: Path
) -> None:
    verdict = judged(text, launcher, folder)
    assert verdict.status == "PASSED", (text, [finding.prose for finding in verdict.findings])
