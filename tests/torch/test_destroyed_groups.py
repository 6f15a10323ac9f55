"""The use of a group after `destroy_process_group`: what torch refuses, what nothing promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import torch_scenarios
from torch_scenarios.errors import ScenarioError

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.execution import Launcher
    from torch_scenarios.model.scenario import Scenario

GROUP = """\
world_size: 2
timeout: 1s
groups: {g: [0, 1]}
tensors: {x: [1], y: [0, 0], many: "[zeros(1), zeros(1)]"}
objects: {letter: [hello]}
steps:
  - destroy_process_group: {group: g}
"""
WORLD = "world_size: 2\ntensors: {x: [1]}\nsteps:\n  - destroy_process_group: {}\n"
RAISED = """\
    expect: {raises: invalid_argument}
expect: {diagnosis: invalid_argument}
"""

LOOKED_UP = {
    "broadcast": GROUP + "  - broadcast: {tensor: x, src: 0, group: g}\n",
    "reduce": GROUP + "  - reduce: {tensor: x, dst: 0, group: g}\n",
    "scatter": GROUP + "  - scatter: {tensor: x, scatter_list: {0: many, else: null}, group: g}\n",
    "object": GROUP + "  - broadcast_object_list: {object_list: letter, group: g}\n",
    "send": GROUP + "  - send: {tensor: x, dst: 1 - rank, group: g}\n",
    "recv": GROUP + "  - recv: {tensor: x, group: g}\n",
    "isend": GROUP + "  - isend: {tensor: x, dst: 1 - rank, group: g}\n",
    "letter": GROUP
    + "  - send_object_list: {object_list: letter, group_dst: 1 - rank, group: g}\n",
    "batch": GROUP
    + "  - batch_isend_irecv:\n"
    + "      p2p_op_list: [{op: isend, tensor: x, group_peer: 1 - rank, group: g}]\n",
    "monitored": GROUP + "  - monitored_barrier: {group: g}\n",
    "twice": GROUP + "  - destroy_process_group: {group: g}\n",
    "world": WORLD + "  - all_reduce: {tensor: x}\n",
    "world_named": WORLD + "  - barrier: {group: world}\n",
    "world_twice": WORLD + "  - destroy_process_group: {}\n",
    "world_named_twice": WORLD + "  - destroy_process_group: {group: world}\n",
    "new_group": WORLD + "  - new_group: {name: g, group_ranks: [0, 1]}\n",
    "group_of_world": GROUP
    + "  - destroy_process_group: {}\n  - broadcast: {tensor: x, src: 0, group: g}\n",
}
KEPT = {
    "all_reduce": GROUP
    + "  - all_reduce: {tensor: x, group: g}\n    expect: {x: [2]}\n"
    + "  - all_reduce: {tensor: x, group: g, async_op: true}\n    as: h\n"
    + "  - wait: h\n    expect: {x: [4]}\n",
    "barrier": GROUP + "  - barrier: {group: g}\n",
    "all_gather": GROUP
    + "  - all_gather: {tensor_list: many, tensor: x, group: g}\n    expect: {many: [[1], [1]]}\n",
    "group_src": GROUP + "  - broadcast: {tensor: x, group_src: 0, group: g}\n",
    "group_dst": GROUP
    + "  - {ranks: 0, isend: {tensor: x, group_dst: 1, group: g}, as: h}\n"
    + "  - {ranks: 1, irecv: {tensor: x, group_src: 0, group: g}, as: h}\n"
    + "  - wait: h\n",
}
RIGHT = {
    "another_of_the_name": """\
world_size: 2
tensors: {x: [1]}
steps:
  - new_group: {name: g, group_ranks: [0, 1]}
  - destroy_process_group: {group: g}
  - new_group: {name: g, group_ranks: [0, 1]}
  - broadcast: {tensor: x, src: 0, group: g}
expect: {x: [1]}
""",
    "a_rank_outside": """\
world_size: 3
groups: {g: [0, 1]}
tensors: {x: [1]}
steps:
  - ranks: [0, 1, 2]
    destroy_process_group: {group: g}
  - ranks: 2
    broadcast: {tensor: x, group_src: 0, group: g}
  - all_reduce: {tensor: x}
expect: {x: [3]}
""",
    "by_one_rank": """\
world_size: 2
groups: {g: [0, 1]}
tensors: {x: [1]}
steps:
  - ranks: 0
    destroy_process_group: {group: g}
  - all_reduce: {tensor: x, group: g}
expect: {diagnosis: invalid_argument, x: [2]}
""",
    "in_a_loop": """\
world_size: 2
tensors: {x: [1]}
steps:
  - for: {i: "range(3)"}
    steps:
      - new_group: {name: g, group_ranks: [0, 1]}
      - broadcast: {tensor: x, src: 0, group: g}
      - all_reduce: {tensor: x, group: g}
      - destroy_process_group: {group: g}
expect: {x: [8]}
""",
    "what_was_started": """\
world_size: 2
groups: {g: [0, 1]}
tensors: {x: [1]}
steps:
  - all_reduce: {tensor: x, group: g, async_op: true}
    as: h
  - wait: h
  - destroy_process_group: {group: g}
  - compute: {x: "x + 1"}
expect: {x: [3]}
""",
}
DECLARED = {name: text + RAISED for name, text in LOOKED_UP.items()} | {
    name: text + "expect: {diagnosis: invalid_argument}\n" for name, text in KEPT.items()
}


def loaded(text: str, folder: Path) -> Scenario:
    path = folder / "program.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    return scenario


@pytest.mark.parametrize("text", LOOKED_UP.values(), ids=LOOKED_UP)
def test_a_call_that_looks_a_destroyed_group_up_raises(text: str, tmp_path: Path) -> None:
    predicted = torch_scenarios.simulate(torch_scenarios.plan(loaded(text, tmp_path)))
    assert predicted.outcome == "error"
    (diagnosis,) = predicted.diagnoses
    assert (diagnosis.name, diagnosis.ranks) == ("invalid_argument", (0, 1))
    assert " was destroyed at program.yaml:" in diagnosis.prose


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_a_destroyed_group_that_still_works_is_diagnosed(text: str, tmp_path: Path) -> None:
    predicted = torch_scenarios.simulate(torch_scenarios.plan(loaded(text, tmp_path)))
    assert (predicted.outcome, predicted.open) == ("completes", ("error",))
    assert {diagnosis.name for diagnosis in predicted.diagnoses} == {"invalid_argument"}


@pytest.mark.parametrize("text", (DECLARED | RIGHT).values(), ids=DECLARED | RIGHT)
def test_what_is_stated_of_destroyed_groups_is_accepted(text: str, tmp_path: Path) -> None:
    scenario = loaded(text, tmp_path)
    verdict = torch_scenarios.judge(
        scenario, torch_scenarios.simulate(torch_scenarios.plan(scenario))
    )
    assert verdict.status == "PASSED", [finding.prose for finding in verdict.findings]


@pytest.mark.torch
@pytest.mark.parametrize("text", (DECLARED | RIGHT).values(), ids=DECLARED | RIGHT)
def test_torch_does_the_same_with_destroyed_groups(
    text: str, tmp_path: Path, launcher: Launcher
) -> None:
    scenario = loaded(text, tmp_path)
    plan = torch_scenarios.plan(scenario)
    predicted = torch_scenarios.simulate(plan)
    verdict = torch_scenarios.judge(scenario, predicted, launcher.run(plan, predicted))
    assert verdict.status == "PASSED", [finding.prose for finding in verdict.findings]


def test_a_receive_on_a_destroyed_group_may_raise_once_it_has_received(tmp_path: Path) -> None:
    text = (
        GROUP
        + "  - {ranks: 0, send: {tensor: x, group_dst: 1, group: g}}\n"
        + "  - {ranks: 1, recv: {tensor: x, group_src: 0, group: g}}\n"
    )
    predicted = torch_scenarios.simulate(torch_scenarios.plan(loaded(text, tmp_path)))
    assert (predicted.outcome, predicted.open) == ("completes", ("error",))


def test_a_large_world_is_told_of_its_destroyed_group_too(tmp_path: Path) -> None:
    text = LOOKED_UP["broadcast"].replace("world_size: 2", "world_size: 32")
    (diagnosis,) = torch_scenarios.simulate(torch_scenarios.plan(loaded(text, tmp_path))).diagnoses
    assert (diagnosis.name, diagnosis.ranks) == ("invalid_argument", (0, 1))


def test_a_destroyed_group_has_no_rank_to_ask_for(tmp_path: Path) -> None:
    scenario = loaded(GROUP + '  - compute: {x: "x + group_rank(g)"}\n', tmp_path)
    with pytest.raises(ScenarioError, match=r"destroyed the\s+group g"):
        torch_scenarios.simulate(torch_scenarios.plan(scenario))


@pytest.mark.parametrize("stated", ["timeout", "invalid_argument"])
def test_a_call_on_a_destroyed_group_that_nobody_completes_may_be_refused_too(
    tmp_path: Path, stated: str
) -> None:
    call = "  - {ranks: 0, CALL: {tensor: x, group: g}, expect: {raises: STATED}}\n"
    text = GROUP + call.replace("STATED", stated).replace("CALL", "all_reduce")
    predicted = torch_scenarios.simulate(torch_scenarios.plan(loaded(text, tmp_path)))
    (failure,) = [event.failure for event in predicted.ranks[0].events if event.failure]
    assert failure.kinds == (stated,)


@pytest.mark.parametrize(("destroyed", "named"), [("g", True), ("other", False)])
def test_whose_peer_is_gone_may_be_told_that_the_group_was_destroyed(
    tmp_path: Path, destroyed: str, *, named: bool
) -> None:
    text = GROUP.replace("[0, 1]}", "[0, 1], other: [0, 1]}").replace("{group: g}", "{group: D}")
    text += "  - {ranks: 0, fault: {raise: boom}}\n  - all_reduce: {tensor: x, group: g}\n"
    predicted = torch_scenarios.simulate(
        torch_scenarios.plan(loaded(text.replace("D}", destroyed + "}"), tmp_path))
    )
    (failure,) = [event.failure for event in predicted.ranks[1].events if event.failure]
    assert ("invalid_argument" in failure.kinds) == named
    assert {"timeout", "peer_lost"} <= {*failure.kinds}
