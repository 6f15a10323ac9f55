"""Random strategies train as one process does, on torch's ranks too, and a departure is found.

`RANDOM_STRATEGIES=200 pytest --nightly tests/strategies/test_random_strategies.py` is the long run,
`RANDOM_SEED` makes others; an ordinary one takes three programs.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from random_strategies import MISTAKES, RandomTraining, random_training

from torch_scenarios.language import load
from torch_scenarios.model.groups import plan
from torch_scenarios.reference import simulate
from torch_scenarios.verdict import judge

if TYPE_CHECKING:
    from torch_scenarios.execution import Launcher

pytestmark = pytest.mark.torch

#: programs of each strategy in a nightly run
COUNT = -(-int(os.environ.get("RANDOM_STRATEGIES", "70")) // len(MISTAKES))
SEED = int(os.environ.get("RANDOM_SEED", "0"))


def planned(program: RandomTraining, folder: Path) -> Any:
    path = folder / "case.yaml"
    path.write_text(program.text, encoding="utf-8")
    (case,) = load(path)
    return plan(case)


def told(prepared: Any, observed: Any) -> tuple[str, list[str]]:
    """Return the verdict on a run, and what is found but for what the analysis has found."""
    verdict = judge(prepared, simulate(prepared), observed, observed.backend)
    found = [each for each in verdict.findings if each.code != "diagnosis_undeclared"]
    return verdict.status, [each.prose for each in found]


def hold(seed: str, strategy: str, launcher: Launcher, folder: Path) -> None:
    """Hold a right program, two others that its run is not of, and a wrong one.

    The run of a wrong one ends as predicted, with the values that are: torch is not what is wrong.
    Under tensor parallelism values are not held, where ranks that hold different tensors are taken
    to hold the same.
    """
    random = Random(seed)  # noqa: S311 -- a program, and no secret
    program = random_training(random, strategy)
    prepared = planned(program, folder)
    observed = launcher.run(prepared, simulate(prepared))
    assert told(prepared, observed) == ("PASSED", []), program.text
    for other in (program.with_another_weight(random), program.with_another_rate()):
        assert told(planned(other, folder), observed)[0] == "FAILED", other.text
    wrong = program.with_mistake(random.choice(MISTAKES[strategy]))
    prepared = planned(wrong, folder)
    predicted = simulate(prepared)
    found = tuple(dict.fromkeys(each.name for each in predicted.diagnoses))
    assert found == ("not_equivalent",), wrong.text
    observed = launcher.run(prepared, predicted)
    assert observed.outcome == predicted.outcome, wrong.text
    if strategy != "tp":
        assert told(prepared, observed) == ("FAILED", []), wrong.text


@pytest.mark.parametrize("strategy", ["ddp", "tp", "pp"])
def test_a_random_strategy_is_one_process(
    strategy: str, launcher: Launcher, tmp_path: Path
) -> None:
    hold(f"{strategy} 0 0", strategy, launcher, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", MISTAKES)
def test_every_random_strategy_is_one_process(
    strategy: str, launcher: Launcher, tmp_path: Path
) -> None:
    for number in range(COUNT):
        hold(f"{strategy} {SEED} {number}", strategy, launcher, tmp_path)
