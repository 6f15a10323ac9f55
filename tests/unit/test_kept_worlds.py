"""Which scenarios can share a world on devices, and which leave something in its communicator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from judging import loaded
from msgspec.structs import replace

import torch_scenarios
from torch_scenarios.execution.protocol import Assignment
from torch_scenarios.execution.supervisor import can_share_world, leaves_world_as_made

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "world_size: 2\ntensors: {x: [1], y: [0, 0]}\n"
STEPS = {
    "a sum": ("- all_reduce: {tensor: x}", True),
    "work that is waited for": (
        "- {all_reduce: {tensor: x, async_op: true}, as: h}\n  - wait: h",
        True,
    ),
    "a sleep and a store": ("- sleep: 0.1s\n  - compute: {x: x + 1}", True),
    "a gathering": ("- all_gather_single: {input: x, output: y}", True),
    "a message": (
        "- {ranks: 0, send: {tensor: x, dst: 1}}\n  - {ranks: 1, recv: {tensor: x, src: 0}}",
        False,
    ),
    "messages of all": ("- all_to_all_single: {input: y, output: y}", False),
    "a group in a step": ("- new_group: {name: g, ranks: [0]}", False),
}


def order_of(folder: Path, steps: str, head: str = HEAD) -> Assignment:
    text = f"{head}steps:\n  {steps}\n"
    scenario, _ = loaded(text, folder)
    return Assignment(number=1, plan=torch_scenarios.plan(scenario), backend="nccl")


@pytest.mark.parametrize("name", STEPS)
def test_what_travels_the_rings_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    steps, leaves_nothing = STEPS[name]
    order = order_of(tmp_path, steps)
    assert leaves_world_as_made(order.plan) is leaves_nothing
    assert can_share_world(order, order) is leaves_nothing


def test_a_group_of_its_own_stays_in_the_world(tmp_path: Path) -> None:
    head = HEAD + "groups: {g: [0]}\n"
    assert not leaves_world_as_made(order_of(tmp_path, STEPS["a sum"][0], head).plan)


def test_a_world_is_shared_by_scenarios_of_one_size_and_backend(tmp_path: Path) -> None:
    order = order_of(tmp_path, STEPS["a sum"][0])
    message = order_of(tmp_path, STEPS["a message"][0])
    larger = order_of(tmp_path, STEPS["a sum"][0], HEAD.replace("2", "3"))
    assert can_share_world(order, message)
    assert not can_share_world(order, larger)
    assert not can_share_world(order, replace(order, share_gpu=True))
    assert not can_share_world(*[replace(order, backend="gloo")] * 2)
