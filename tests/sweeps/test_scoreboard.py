"""The static part of the scoreboard: programs whose verdict is known by construction."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from sampling import sampled

from benchmarks.scoreboard.catalogue import by_label, programs, sample
from benchmarks.scoreboard.program import CLASSES, CORRECT, Program
from benchmarks.scoreboard.witnesses import analyse
from torch_scenarios.vocabulary import DIAGNOSES

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = sample(10, seed=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scoreboard")


def test_the_generator_yields_enough_programs_of_every_class() -> None:
    rows = by_label(programs(), lambda program: program)
    assert len(programs()) >= 1500
    assert set(rows) == {*CLASSES, CORRECT}
    assert min(map(len, rows.values())) >= 20
    assert len(rows[CORRECT]) >= len(programs()) // 3


def test_no_two_programs_share_a_name() -> None:
    counted = Counter(program.name for program in programs())
    assert [name for name, count in counted.items() if count > 1] == []


def test_what_is_expected_is_a_diagnosis_of_the_language() -> None:
    names = {name for each in programs() for name in (*each.expected, *each.allowed)}
    assert names <= set(DIAGNOSES)


def test_a_sample_depends_on_its_seed_alone() -> None:
    assert sample(3, seed=5) == sample(3, seed=5)
    assert sample(3, seed=5) != sample(3, seed=6)


@pytest.mark.parametrize("program", sampled(SAMPLE, 4), ids=lambda program: program.name)
def test_the_analysis_says_what_is_known_by_construction(program: Program, folder: Path) -> None:
    verdict = analyse(program, folder).verdict
    if program.correct:
        assert not verdict.alarmed, program.text
        return
    assert verdict.names[0] in program.expected, program.text
    assert verdict.named, (verdict.names, program.text)
    assert verdict.first == program.first, program.text
    assert verdict.outcome in program.outcomes, program.text
