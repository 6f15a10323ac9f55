"""What `communicates` and `memory` are asked of: the ranks of a model, and of the group named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from torch_scenarios.language import load
from torch_scenarios.pipeline.attempts import analyse

if TYPE_CHECKING:
    from pathlib import Path

GROUPS = {
    "pair": "pair: [1, 2]",
    "mesh.dp": "mesh: {shape: [1, 3], dims: [pp, dp]}",
    "grid.dp": "grid: {shape: [2, 2], dims: [pp, dp]}",
    "backwards": "backwards: {ranks: [3, 1], sort_ranks: false}",
    "half": "half: {partition: [[0, 1], [2, 3]]}",
}
STATED = {
    "a list": "net: [[all_reduce, float32, 3]]",
    "a list of a group": "net: {GROUP: [[all_reduce, float32, 3]]}",
    "a list of the world": "net: {world: []}",
    "else": "net: {1: [[all_reduce, float32, 3]], else: [[all_reduce, float32, 3]]}",
}


def program(group: str, expect: str, strategy: str | None = None) -> str:
    parallel = strategy or f"DistributedDataParallel: {{process_group: {group}}}"
    return f"""\
world_size: 5
groups: {{{GROUPS[group]}}}
models:
  net:
    layers: [fc: {{Linear: {{in_features: 2, out_features: 1}}}}]
    loss: mse_loss
    optimizer: {{SGD: {{lr: 0.1}}}}
    parallel: [{parallel}]
tensors: {{x: "random([6, 2], 1)", y: "random([6, 1], 2)"}}
steps:
  - train: {{model: net, input: x, target: y, batch: {group}}}
expect:
  {expect}
"""


def status(path: Path, text: str) -> str:
    path.write_text(text)
    return analyse(load(path)[0]).verdict.status


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("stated", STATED)
def test_calls_are_asked_of_members(tmp_path: Path, group: str, stated: str) -> None:
    text = program(group, f"communicates: {{{STATED[stated].replace('GROUP', group)}}}")
    assert status(tmp_path / "asked.yaml", text) == "PASSED"
    assert status(tmp_path / "other.yaml", text.replace("32, 3]", "32, 4]")) == (
        "PASSED" if stated == "a list of the world" else "FAILED"
    )


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("bytes_", ["12", "{1: 12, else: 12}", "{value: 12, rtol: 0}"])
def test_memory_is_asked_of_members(tmp_path: Path, group: str, bytes_: str) -> None:
    text = program(group, f"memory: {{net: {{parameters: {bytes_}}}}}")
    assert status(tmp_path / "asked.yaml", text) == "PASSED"
    assert status(tmp_path / "other.yaml", text.replace("12", "16")) == "FAILED"


def test_memory_is_asked_of_the_members_of_a_mesh(tmp_path: Path) -> None:
    text = program("grid.dp", "memory: {net: {optimizer: 0}}", "fully_shard: {mesh: grid}")
    assert status(tmp_path / "mesh.yaml", text) == "PASSED"


def test_a_rank_that_is_named_is_asked(tmp_path: Path) -> None:
    calls = program("pair", "communicates: {net: {4: [[all_reduce, float32, 3]]}}")
    assert status(tmp_path / "calls.yaml", calls) == "FAILED"
    memory = program("pair", "memory: {net: {parameters: {4: 12}}}")
    assert status(tmp_path / "memory.yaml", memory) == "INVALID"
