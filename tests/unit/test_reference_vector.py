"""The engine that takes a step for all ranks at once returns what the other one returns."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from random_programs import programs
from spmd_programs import spmd_programs
from traces import departures

import runner
from runner.language import discover
from runner.language.limits import DEFAULT
from runner.problems import ScenarioError
from runner.reference.simulate import walked
from runner.reference.vector import Beyond, swept

if TYPE_CHECKING:
    from runner.plan import Plan
    from runner.scenario import Scenario

CORPUS = Path(__file__).parents[2] / "scenarios"
FOLDERS = sorted(path.name for path in CORPUS.iterdir() if path.is_dir())

COUNT = int(os.environ.get("RANDOM_PROGRAMS", "100"))
BOUNDED = settings(
    max_examples=COUNT,
    deadline=None,
    derandomize=COUNT <= 100,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vector")


def case_of(text: str, folder: Path) -> Scenario:
    path = folder / "program.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = runner.load(path)
    return scenario


def agrees(plan: Plan) -> bool:
    """Compare the engines; False where the second one leaves the program to the first."""
    try:
        trace = swept(plan, DEFAULT)
    except Beyond:
        return False
    assert departures(trace, walked(plan, DEFAULT)) == []
    return True


@pytest.mark.parametrize("name", FOLDERS)
def test_the_engines_agree_on_the_corpus(name: str) -> None:
    for path in discover([str(CORPUS / name)]):
        for scenario in runner.load(path):
            agrees(runner.plan(scenario))


def test_most_of_the_right_programs_of_the_corpus_are_taken_at_once() -> None:
    taken = [
        agrees(runner.plan(scenario))
        for name in ("p2p", "collectives", "compute", "barrier")
        for path in discover([str(CORPUS / name)])
        for scenario in runner.load(path)
        if scenario.expect.outcome == "completes"
    ]
    assert sum(taken) > len(taken) / 2


@given(text=spmd_programs(wrong=False))
@BOUNDED
def test_the_engines_agree_on_programs_that_all_ranks_take_together(
    text: str, folder: Path
) -> None:
    try:
        plan = runner.plan(case_of(text, folder))
        expected = walked(plan, DEFAULT)
    except ScenarioError:
        return  # a value that cannot be computed
    try:
        trace = swept(plan, DEFAULT)
    except Beyond as beyond:
        assert expected.diagnoses or "undefined" in str(beyond), (text, str(beyond))  # noqa: PT017
        return
    assert departures(trace, expected) == [], text


@given(text=spmd_programs(wrong=True))
@BOUNDED
def test_the_engines_agree_on_broken_programs(text: str, folder: Path) -> None:
    try:
        plan = runner.plan(case_of(text, folder))
    except ScenarioError:
        return  # a fault that the language itself refuses
    try:
        expected = walked(plan, DEFAULT)
    except ScenarioError:
        with pytest.raises(Beyond):
            swept(plan, DEFAULT)
        return
    taken = agrees(plan)
    assert not (taken and expected.diagnoses), text


@pytest.mark.parametrize("wrong", [False, True])
def test_the_engines_agree_on_programs_whose_ranks_differ(wrong: bool, folder: Path) -> None:  # noqa: FBT001 -- a parameter
    @given(text=programs(wrong=wrong))
    @BOUNDED
    def compared(text: str) -> None:
        agrees(runner.plan(case_of(text, folder)))

    compared()
