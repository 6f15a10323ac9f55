"""A worker that is lost before its scenario begins does not count against the scenario."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from judging import loaded
from msgspec.structs import replace

import torch_scenarios
from torch_scenarios.execution.local_store import LocalStore
from torch_scenarios.execution.protocol import BEGUN, Assignment, Supervision
from torch_scenarios.execution.supervisor import Supervisor

if TYPE_CHECKING:
    from pathlib import Path

SUM = "world_size: 2\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}}]\n"
NONCE = "the place of the only order"
STOPPED = {1: "process 7 is stopped (SIGSTOP or the like)"}


@pytest.mark.parametrize("begun", [False, True])
def test_a_worker_that_stops_before_the_scenario_began_leaves_it_unbegun(
    local_store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, begun: bool
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: NONCE)
    scenario, _ = loaded(SUM, tmp_path)
    order = Assignment(number=1, plan=torch_scenarios.plan(scenario), backend="gloo")
    if begun:
        local_store.set(f"{replace(order, nonce=NONCE).place}/{BEGUN}", b"1")
    supervisor = Supervisor(local_store, dict, lambda _: STOPPED)
    found = supervisor.run(order, Supervision(world_size=2, patience_s=60.0))
    assert found.lost == STOPPED
    assert found.unbegun == (not begun)
    assert not found.usable
