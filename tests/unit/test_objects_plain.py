"""Objects hold plain values, which a rank can be sent without naming a class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import torch_scenarios
from torch_scenarios.errors import ScenarioError

if TYPE_CHECKING:
    from pathlib import Path


def held(expression: str, folder: Path) -> object:
    """Return what rank 1 holds in an object of that expression."""
    path = folder / "x.yaml"
    path.write_text(
        f'world_size: 2\nobjects: {{o: {{expr: "{expression}"}}}}\nsteps: [barrier: {{}}]\n',
        encoding="utf-8",
    )
    (scenario,) = torch_scenarios.load(path)
    return torch_scenarios.simulate(torch_scenarios.plan(scenario)).ranks[1].initial["o"]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("rank", 1),
        ("rank / 2", 0.5),
        ("rank == 1", True),
        ("range(3)", [0, 1, 2]),
        ("[range(2), 7]", [[0, 1], 7]),
        ("group_ranks(world)", [0, 1]),
        ("shape(zeros(3))", [3]),
    ],
)
def test_a_part_of_an_object_is_a_plain_value(
    expression: str, value: object, tmp_path: Path
) -> None:
    found = held(expression, tmp_path)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("expression", ["zeros(2)", "[1, zeros(1)]", "1 + 2j", "exp(zeros(1))"])
def test_a_tensor_or_a_complex_number_is_no_part_of_an_object(
    expression: str, tmp_path: Path
) -> None:
    with pytest.raises(ScenarioError, match="an object holds plain values"):
        held(expression, tmp_path)
