"""Ranks that leave a collective before all have entered: what may rely on it is tried, alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import torch_scenarios
from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.limits import DEFAULT
from torch_scenarios.reference.schedules import explore, rest
from torch_scenarios.reference.semantics import Semantics

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """\
world_size: 3
groups: {low: [0, 1], ends: [0, 2], high: [1, 2]}
tensors: {x: [1, 2], y: [0, 0]}
steps:
"""
SOURCE_FIRST = "- {broadcast: {tensor: x, src: 0}}\n- {all_reduce: {tensor: x}}\n"
IN_LINE = """\
- {broadcast: {tensor: x, src: 0, group: low}}
- {broadcast: {tensor: x, src: 0, group: ends}}
- {broadcast: {tensor: x, src: 1, group: high}}
"""
CROSSED = """\
- {ranks: 0, broadcast: {tensor: x, src: 0, group: low}}
- {ranks: 0, broadcast: {tensor: x, src: 0, group: ends}}
- {ranks: 2, broadcast: {tensor: x, src: 0, group: ends}}
- {ranks: 2, broadcast: {tensor: x, src: 2, group: high}}
- {ranks: 1, broadcast: {tensor: x, src: 2, group: high}}
- {ranks: 1, broadcast: {tensor: x, src: 0, group: low}}
"""
BOTH_SEND_AND_WAIT_LATER = """\
- {broadcast: {tensor: x, src: 0}}
- {ranks: 0, isend: {tensor: x, dst: 1}, as: up}
- {ranks: 0, irecv: {tensor: y, src: 1}, as: down}
- {ranks: 1, isend: {tensor: x, dst: 0}, as: up}
- {ranks: 1, irecv: {tensor: y, src: 0}, as: down}
- {ranks: "rank < 2", wait: [up, down]}
"""
#: rank 1 sends on what it gets only once rank 0 has left the broadcast, for which rank 2 waits
SENT_ON = """\
- {ranks: 0, broadcast: {tensor: x, src: 0, group: ends}}
- {ranks: 0, send: {tensor: x, dst: 1}}
- {ranks: 1, irecv: {tensor: y, src: 0}, as: down}
- {ranks: 1, wait: down}
- {ranks: 1, isend: {tensor: y, dst: 2}, as: up}
- {ranks: 2, recv: {tensor: y, src: 1}}
- {ranks: 2, broadcast: {tensor: x, src: 0, group: ends}}
- {ranks: 1, wait: up}
"""


@pytest.mark.parametrize(
    ("steps", "strictly"),
    [
        pytest.param(SOURCE_FIRST, "completes", id="one_group"),
        pytest.param(IN_LINE, "completes", id="groups_in_line"),
        pytest.param(CROSSED, "deadlock", id="groups_crossed"),
        pytest.param(BOTH_SEND_AND_WAIT_LATER, "completes", id="both_send_and_wait_later"),
        pytest.param(SENT_ON, "deadlock", id="sent_on"),
    ],
)
def test_what_may_rely_on_leaving_early_is_told(steps: str, strictly: str, tmp_path: Path) -> None:
    (tmp_path / "early.yaml").write_text(HEAD + steps)
    planned = torch_scenarios.plan(torch_scenarios.load(tmp_path / "early.yaml")[0])
    arrays = numpy_arrays(DEFAULT)
    (main, *_), _ = explore(planned, arrays, Semantics(), limits=DEFAULT)
    strict = rest(planned, arrays, Semantics(strict=True), limits=DEFAULT)
    assert main.simulation.hurried
    assert main.outcome == "completes"
    assert main.synchronises() is (strictly == "completes")
    assert strict.outcome == strictly
