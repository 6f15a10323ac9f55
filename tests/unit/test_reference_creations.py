"""Groups that ranks create while the program runs: which calls of `new_group` belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import runner

if TYPE_CHECKING:
    from pathlib import Path

    from runner.execution import Launcher
    from runner.verdict import Verdict


def judged(text: str, folder: Path) -> Verdict:
    path = folder / "program.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = runner.load(path)
    return runner.judge(scenario, runner.simulate(runner.plan(scenario)))


APART = """\
world_size: 4
tensors: {x: "full(1, rank + 1)"}
steps:
  - new_group: {name: g, ranks: "[0, 1] if rank < 2 else [2, 3]", use_local_synchronization: true}
  - all_reduce: {tensor: x, group: g}
    expect: {x: {"rank < 2": [3], else: [7]}}
"""

ANY_ORDER = """\
world_size: 3
tensors: {x: "full(1, rank + 1)"}
steps:
  - ranks: [0, 1]
    new_group: {name: left, ranks: [0, 1], use_local_synchronization: true}
  - ranks: [0, 2]
    new_group: {name: right, ranks: [0, 2], use_local_synchronization: true}
  - all_reduce: {tensor: x, group: left}
  - all_reduce: {tensor: x, group: right}
    expect: {x: {0: [6], 2: [6]}}
"""

TWO_NAMES = """\
world_size: 2
tensors: {x: "full(1, rank + 1)"}
steps:
  - {ranks: 0, new_group: {name: a, ranks: [0, 1]}}
  - {ranks: 1, new_group: {name: b, ranks: [0, 1]}}
  - {ranks: 0, all_reduce: {tensor: x, group: a}}
  - {ranks: 1, all_reduce: {tensor: x, group: b}}
expect: {x: [3]}
"""

TWICE = """\
world_size: 2
tensors: {x: "full(1, rank + 1)"}
steps:
  - for: {i: "range(2)"}
    steps:
    - new_group: {name: g, ranks: [0, 1], use_local_synchronization: true}
    - all_reduce: {tensor: x, group: g}
expect: {x: [6]}
"""

RENAMED = """\
world_size: 3
tensors: {x: [1]}
steps:
  - new_group: {name: g, group_ranks: [0, 1]}
  - new_group: {name: g, group_ranks: [1, 2]}
  - expect: {"group_rank(g)": {0: -1, 1: 0, 2: 1}}
  - all_reduce: {tensor: x, group: g}
expect: {x: {0: [1], else: [2]}}
"""


@pytest.mark.parametrize("text", [APART, ANY_ORDER, TWO_NAMES, TWICE])
def test_groups_that_their_members_create_alike_are_right(text: str, tmp_path: Path) -> None:
    verdict = judged(text, tmp_path)
    assert verdict.status == "PASSED", [finding.prose for finding in verdict.findings]


@pytest.mark.torch
@pytest.mark.parametrize("text", [APART, TWO_NAMES, TWICE, RENAMED])
def test_torch_creates_them_too(text: str, tmp_path: Path, launcher: Launcher) -> None:
    path = tmp_path / "program.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = runner.load(path)
    plan = runner.plan(scenario)
    predicted = runner.simulate(plan)
    verdict = runner.judge(scenario, predicted, launcher.run(plan, predicted))
    assert verdict.status == "PASSED", [finding.prose for finding in verdict.findings]


def test_ranks_that_stand_alone_in_groups_of_one_name_do_not_meet(tmp_path: Path) -> None:
    text = """\
world_size: 2
tensors: {x: "full(1, rank + 1)"}
steps:
  - new_group: {name: own, ranks: "[rank]", use_local_synchronization: true}
  - all_reduce: {tensor: x, group: own}
    expect: {x: "full(1, rank + 1)"}
"""
    path = tmp_path / "program.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = runner.load(path)
    predicted = runner.simulate(runner.plan(scenario))
    assert runner.judge(scenario, predicted).status == "PASSED"
    assert predicted.ranks[0].links[1] != predicted.ranks[1].links[1]


def test_a_member_that_creates_another_group_is_missed(tmp_path: Path) -> None:
    text = """\
world_size: 3
steps:
  - ranks: [0, 1]
    new_group: {name: g, ranks: "[0, 1] if rank == 0 else [0, 1, 2]",
      use_local_synchronization: true}
expect: {outcome: deadlock, diagnosis: group_creation, blocked: {0: new_group g, 1: new_group g}}
"""
    verdict = judged(text, tmp_path)
    assert verdict.status == "PASSED", [finding.prose for finding in verdict.findings]


def test_a_name_means_the_latest_group_also_where_it_is_of_others(tmp_path: Path) -> None:
    verdict = judged(RENAMED, tmp_path)
    assert verdict.status == "PASSED", [finding.prose for finding in verdict.findings]


DISPUTED = """\
world_size: 4
steps:
  - {ranks: [0, 1, 2], new_group: {name: g, group_ranks: [1, 3]}}
  - new_group: {name: h, group_ranks: [0, 3]}
  - barrier: {}
expect: {outcome: deadlock, diagnosis: group_creation BLOCKED}
"""


def test_who_creates_after_a_dispute_is_not_blocked_for_sure(tmp_path: Path) -> None:
    # rank 1 and rank 3 each wait for the other under one count, and on Gloo they meet
    without = judged(DISPUTED.replace(" BLOCKED", ""), tmp_path)
    assert without.status == "PASSED", [finding.prose for finding in without.findings]
    assert without.predicted is not None
    endings = [rank.ending for rank in without.predicted.ranks]
    assert endings == ["possibly_blocked"] * 4
    for rank, step in {0: "new_group h", 1: "new_group g", 2: "barrier"}.items():
        stated = judged(DISPUTED.replace(" BLOCKED", f", blocked: {{{rank}: {step}}}"), tmp_path)
        assert any("only possibly blocked" in finding.prose for finding in stated.findings)


def test_who_waits_for_a_creation_that_nobody_disputes_is_blocked_for_sure(tmp_path: Path) -> None:
    text = """\
world_size: 3
steps:
  - {ranks: [0, 2], new_group: {name: g, group_ranks: [0, 1]}}
expect: {outcome: deadlock, diagnosis: missing_participant, blocked: {0: new_group g}}
"""
    verdict = judged(text, tmp_path)
    assert verdict.status == "PASSED", [finding.prose for finding in verdict.findings]
