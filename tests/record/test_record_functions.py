"""The fixture `record_program`: what a function communicates, held fast by a repository's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from recorded_steps import longer_step, step_that_meets_behind_an_error, stuck_step, train_step

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.record.function import ProgramRecorder

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.mark.parametrize("fake", [True, False])
def test_a_function_has_a_verdict_and_a_scenario(
    record_program: ProgramRecorder, *, fake: bool
) -> None:
    verdict, scenario = record_program(train_step, world_size=2, fake=fake)
    assert verdict.status == "PASSED"
    assert scenario.world_size == 2


def test_it_is_held_to_a_file(record_program: ProgramRecorder, tmp_path: Path) -> None:
    step = tmp_path / "train_step.yaml"
    found = record_program(train_step, world_size=2)
    with pytest.raises(AssertionError, match="is not there; what was recorded is:"):
        found.communicates_as(step)
    step.write_text(found.text, encoding="utf-8")
    found.communicates_as(step)
    longer = record_program(longer_step, world_size=2)
    assert longer.status == "PASSED"
    with pytest.raises(AssertionError, match=r"ranks 0 and 1: now calls all_reduce "):
        longer.communicates_as(step)


def test_a_function_that_would_hang_fails_at_once(record_program: ProgramRecorder) -> None:
    found = record_program(stuck_step, world_size=2)
    assert found.status == "FAILED"
    assert found.diagnoses == ("call_mismatch",)
    assert any("recorded_steps.py" in words for words in found.words)


def test_a_function_that_no_other_process_finds_is_refused(record_program: ProgramRecorder) -> None:
    with pytest.raises(ValueError, match="write it at the top of a module"):
        record_program(lambda: None)


def test_a_function_that_hangs_where_a_rank_raises_fails(record_program: ProgramRecorder) -> None:
    found = record_program(step_that_meets_behind_an_error, world_size=2, nemesis="raise")
    assert found.status == "FAILED"
    assert any("the job hangs where rank 0 or rank 1 raises" in words for words in found.words)
