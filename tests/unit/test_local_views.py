"""`placements` in an expectation: what a rank itself holds, and the whole without it."""

from __future__ import annotations

from pathlib import Path

import pytest

import torch_scenarios
from torch_scenarios.errors import ScenarioError
from torch_scenarios.operations.placement import (
    REPLICATE,
    Placement,
    decode,
    encode,
    partial_of,
    shard,
)
from torch_scenarios.verdict import Verdict

SHARDED = """
world_size: 3
groups: {mesh: {shape: [3], dims: [dp]}}
models:
  net:
    layers: [fc: {Linear: {in_features: 1, out_features: 5, bias: false}}]
    loss: mse_loss
    optimizer: {SGD: {lr: 1.0}}
    parallel: [fully_shard: {mesh: mesh.dp}]
    init: {fc.weight: [[1], [2], [3], [4], [5]]}
tensors: {x: [[1], [1], [1]], y: "zeros([3, 5])"}
steps:
  - train: {model: net, input: x, target: y, batch: mesh.dp, step: false}
expect: {net.fc.weight: WANTED}
"""
LYING = """
world_size: 4
groups: {mesh: {shape: [2, 2], dims: [a, b]}}
tensors: {t: "reshape(arange(20), [5, 4])"}
steps:
  - distribute_tensor: {tensor: t, device_mesh: mesh, placements: [Shard(0), Shard(1)]}
    expect: {t: WANTED}
"""


def judged(tmp_path: Path, text: str, wanted: str) -> Verdict:
    """Return what the analysis says where that is stated."""
    file = tmp_path / "it.yaml"
    file.write_text(text.replace("WANTED", wanted), encoding="utf-8")
    (scenario,) = torch_scenarios.load(file)
    plan = torch_scenarios.plan(scenario)
    return torch_scenarios.judge(plan, torch_scenarios.simulate(plan))


def found_in(tmp_path: Path, text: str, wanted: str) -> list[str]:
    """Return the codes of what the analysis finds."""
    return [finding.code for finding in judged(tmp_path, text, wanted).findings]


@pytest.mark.parametrize(
    ("wanted", "codes"),
    [
        ("[[1], [2], [3], [4], [5]]", []),
        ("[[1], [2], [3], [4], [6]]", ["value_differs"]),
        ("{shape: [5, 1]}", []),
        ("{shape: [2, 1]}", ["shape_differs"]),
        ("[[1], [2]]", ["shape_differs"]),
        ("{0: [[1], [2], [3], [4], [5]]}", []),
        ("{placements: [Shard(0)], value: {0: [[1], [2]], 2: [[5]]}}", []),
        ("{placements: [Shard(0)], value: {0: [[1], [2]], 2: [[4]]}}", ["value_differs"]),
        ("{placements: [Shard(0)], shape: {0: [2, 1], 2: [1, 1]}, dtype: float32}", []),
        ("{placements: [Shard(0)], shape: [5, 1]}", ["shape_differs"]),
        ("{placements: [Shard(0)], dtype: float64}", ["dtype_differs"]),
        ("{placements: [Shard(0)], value: {0: [[1.1], [2]]}, rtol: 0.2}", []),
        ("{placements: [Shard(1)]}", ["placements_differ"]),
        ("{placements: [Replicate()]}", ["placements_differ"]),
        ("{placements: [Shard(0), Replicate()]}", ["placements_differ"]),
        ("{0: {placements: [Shard(0)]}, 1: {placements: [Shard(1)]}}", ["placements_differ"]),
    ],
)
def test_a_parameter_is_stated_as_a_whole_or_as_it_lies(
    tmp_path: Path, wanted: str, codes: list[str]
) -> None:
    assert found_in(tmp_path, SHARDED, wanted) == codes


@pytest.mark.parametrize(
    ("wanted", "codes"),
    [
        ("{placements: [Shard(0), Shard(1)], shape: {0: [3, 2], 3: [2, 2]}}", []),
        ("{placements: [Shard(0), Shard(-1)]}", []),
        ("{placements: [Shard(1), Shard(0)]}", ["placements_differ"]),
        ("{placements: [Shard(0), Shard(1)], value: {3: [[14, 15], [18, 19]]}}", []),
        ("{placements: [Shard(0), Shard(1)], value: {3: [[14, 15], [18, 20]]}}", ["value_differs"]),
    ],
)
def test_a_distributed_tensor_is_stated_as_it_lies(
    tmp_path: Path, wanted: str, codes: list[str]
) -> None:
    assert found_in(tmp_path, LYING, wanted) == codes


def test_what_is_no_placement_is_invalid(tmp_path: Path) -> None:
    verdict = judged(tmp_path, LYING, "{placements: [1 + 3]}")
    assert verdict.status == "INVALID"
    assert "`4` is not a placement" in verdict.problems[0].message


@pytest.mark.parametrize("top", ["", "parameters: {p: Shard(0)}", "matrix: {p: [Shard(0)]}"])
def test_one_placement_is_no_list(tmp_path: Path, top: str) -> None:
    stated = "p" if top else "Shard(0)"
    with pytest.raises(ScenarioError) as raised:
        judged(tmp_path, top + LYING, f"{{placements: {stated}}}")
    (problem,) = raised.value.problems
    assert problem.code == "wrong_type"
    assert problem.mark is not None
    assert problem.mark.column == LYING.splitlines()[6].index("WANTED") + 14
    assert problem.hint == f"write one for each mesh dimension: `placements: [{stated}]`"


@pytest.mark.parametrize(
    "placements",
    [None, (), (REPLICATE,), (shard(0), shard(3)), (partial_of("avg"), shard(1), REPLICATE)],
)
def test_a_code_says_the_placements(placements: tuple[Placement, ...] | None) -> None:
    assert decode(encode(placements)) == placements


@pytest.mark.parametrize(
    ("wanted", "token"),
    [
        ("{placements: [Shard(1), Shard(0)], shape: [3, 2]}", "[Shard(1), Shard(0)]"),
        ("{shape: [2, 2], placements: [Shard(0), Shard(1)]}", "[2, 2]"),
        ("{placements: [Shard(0), Shard(1)], dtype: int64}", "int64"),
        ("{placements: [Shard(0), Shard(1)], value: {3: [[1, 1], [1, 1]]}}", "[[1, 1], [1, 1]]"),
        ("{2: {placements: {2: [Shard(2)]}}, else: {shape: {0: [3, 2]}}}", "[Shard(2)]"),
    ],
)
def test_a_finding_is_at_the_part_of_the_form_that_is_wrong(
    tmp_path: Path, wanted: str, token: str
) -> None:
    (finding,) = judged(tmp_path, LYING, wanted).findings
    mark = finding.mark
    assert mark is not None
    assert mark.end_column is not None
    assert mark.source.line(mark.line)[mark.column - 1 : mark.end_column - 1] == token
