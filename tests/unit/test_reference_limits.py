"""The analysis refuses what is too large, before it is too late."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import torch_scenarios
from torch_scenarios.errors import ScenarioError
from torch_scenarios.limits import Limits
from torch_scenarios.reference import simulate

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """\
world_size: 4
tensors: {x: "zeros(1000)"}
steps:
- for: {i: "range(10)"}
  steps:
  - all_reduce: {tensor: x}
"""


def refusal(folder: Path, limits: Limits) -> str:
    path = folder / "large.yaml"
    path.write_text(TEXT)
    (scenario,) = torch_scenarios.load(path)
    with pytest.raises(ScenarioError) as raised:
        simulate(torch_scenarios.plan(scenario), limits=limits)
    (problem,) = raised.value.problems
    return f"{problem.code}: {problem.message}"


def test_too_many_steps_name_their_flag(tmp_path: Path) -> None:
    text = refusal(tmp_path, Limits(max_steps=20))
    assert text == (
        "too_many_steps: the program takes too many steps: "
        "at most 20 steps taken, over all ranks (`--limit steps=N` raises it)"
    )


@pytest.mark.parametrize("most", [10_000, 100_000])
def test_too_much_memory_names_its_flag(tmp_path: Path, most: int) -> None:
    text = refusal(tmp_path, Limits(max_bytes=most))
    assert text.startswith("too_much_memory: the program holds too much: ")
    assert "--limit bytes=N" in text


def test_a_program_within_its_limits_is_analysed(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(TEXT)
    (scenario,) = torch_scenarios.load(path)
    trace = simulate(
        torch_scenarios.plan(scenario), limits=Limits(max_steps=45, max_bytes=1_000_000)
    )
    assert trace.outcome == "completes"
