"""The reference accepts what is right and names what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from programs import CORRECT, WRONG, Program

import runner

if TYPE_CHECKING:
    from pathlib import Path

    from runner.trace import Trace


def analysed(program: Program, folder: Path) -> Trace:
    path = folder / f"{program.name}.yaml"
    path.write_text(program.text)
    (scenario,) = runner.load(path)
    return runner.simulate(runner.plan(scenario))


@pytest.mark.parametrize("program", CORRECT, ids=lambda program: program.name)
def test_a_correct_program_completes_without_a_diagnosis(program: Program, tmp_path: Path) -> None:
    trace = analysed(program, tmp_path)
    assert [diagnosis.name for diagnosis in trace.diagnoses] == []
    assert trace.outcome == "completes"
    assert trace.open == ()


@pytest.mark.parametrize("program", WRONG, ids=lambda program: program.name)
def test_a_wrong_program_is_called_by_its_name(program: Program, tmp_path: Path) -> None:
    trace = analysed(program, tmp_path)
    assert tuple(diagnosis.name for diagnosis in trace.diagnoses) == program.diagnoses
    assert trace.outcome == program.outcome
    blocked = tuple(rank.rank for rank in trace.ranks if rank.ending == "blocked")
    assert blocked == program.blocked
