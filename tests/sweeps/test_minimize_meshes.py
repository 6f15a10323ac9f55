"""Minimizing a program on a mesh: slices of it go, with the ranks that stand in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from torch_scenarios.language.document import load_content
from torch_scenarios.limits import DEFAULT
from torch_scenarios.minimize import analysis_oracle, minimize

PATH = Path("mesh.yaml")

CROSSED = """\
world_size: 8
groups:
  m: {shape: SHAPE, dims: DIMS}
tensors: {x: [1]}
steps:
  - ranks: "group_rank(m.tp) % 2 == group_rank(m.dp)"
    all_reduce: {tensor: x, group: m.tp}
  - all_reduce: {tensor: x}
  - ranks: "group_rank(m.tp) % 2 != group_rank(m.dp)"
    all_reduce: {tensor: x, group: m.tp}
"""


def smallest(text: str, shape: str, dims: str = "[dp, tp]") -> tuple[int, list[int]]:
    """Return the size of the smallest world with the same fault, and its mesh."""
    whole = text.replace("SHAPE", shape).replace("DIMS", dims)
    (scenario,) = load_content(PATH, whole.encode())
    done = minimize(scenario, 0, analysis_oracle(PATH, DEFAULT))
    assert done.minimal
    assert analysis_oracle(PATH, DEFAULT)(done.text) == done.signature
    world = re.search(r"world_size: (\d+)", done.text)
    mesh = re.search(r"shape: \[([\d, ]+)\]", done.text)
    assert world is not None
    assert mesh is not None
    return int(world[1]), [int(each) for each in mesh[1].split(",")]


@pytest.mark.parametrize(
    ("shape", "dims"),
    [("[2, 4]", "[dp, tp]"), ("[4, 2]", "[dp, tp]"), ("[2, 2, 2]", "[dp, pp, tp]")],
)
def test_a_mesh_becomes_as_small_as_its_fault(shape: str, dims: str) -> None:
    world, mesh = smallest(CROSSED, shape, dims)
    assert world == 2
    assert sorted(mesh) == [1] * (len(mesh) - 1) + [2]


def test_slices_that_the_fault_needs_stay() -> None:
    both = """\
world_size: 12
groups:
  m: {shape: SHAPE, dims: DIMS}
tensors: {x: [1]}
steps:
  - ranks: "group_size(m.tp) < 2 or group_size(m.dp) < 2 or rank > 0"
    all_reduce: {tensor: x, group: m.tp}
"""
    assert smallest(both, "[3, 4]") == (4, [2, 2])


def test_a_mesh_in_a_larger_world_keeps_its_shape_or_loses_ranks_beside_it() -> None:
    larger = CROSSED.replace("world_size: 8", "world_size: 9")
    world, mesh = smallest(larger, "[2, 4]")
    assert world < 9
    assert mesh[0] * mesh[1] <= world
