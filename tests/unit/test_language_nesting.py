"""A tensor where a list of tensors is wanted, or the reverse, is told in the file's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from torch_scenarios.errors import ScenarioError
from torch_scenarios.language import load
from torch_scenarios.model.groups import plan
from torch_scenarios.reference import simulate

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            "scatter: {tensor: x, scatter_list: x, src: 0}",
            "`scatter_list` is not a list of tensors",
        ),
        ("all_gather: {tensor_list: x, tensor: x}", "`tensor_list` is not a list of tensors"),
        ("all_reduce: {tensor: parts}", "`tensor` is not a tensor"),
        ("scatter: {tensor: x, scatter_list: [parts, parts]}", "`scatter_list` is not a list"),
    ],
)
def test_what_is_nested_wrongly_is_told_at_its_place(
    step: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "it.yaml"
    file.write_text(
        "world_size: 2\ntensors: {x: [1, 2], parts: '[zeros(2), zeros(2)]'}\n"
        f"steps:\n  - {step}\n",
        encoding="utf-8",
    )
    (scenario,) = load(file)
    with pytest.raises(ScenarioError) as caught:
        simulate(plan(scenario))
    problem = caught.value.problems[0]
    assert problem.code == "wrong_type"
    assert problem.message.startswith(message)
    assert problem.mark is not None
    assert problem.mark.line == 4
