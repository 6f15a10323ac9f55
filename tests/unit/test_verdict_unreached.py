"""Expectations that no rank reaches are findings; steps that no rank takes are warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from judging import checked, codes, ran

import torch_scenarios
from torch_scenarios.errors import ScenarioError
from torch_scenarios.pipeline.attempts import analyse

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.verdict import Verdict

HEAD = "world_size: 2\ngroups: {one: [1]}\ntensors: {x: [1], y: [7]}\nsteps:\n"
SUM = "  - all_reduce: {tensor: x}\n"
STUCK = "  - {ranks: 0, name: stuck, barrier: {}}\n"
HANGS = "expect: {outcome: deadlock, diagnosis: missing_participant}\n"


def judged(text: str, folder: Path, *others: tuple[str, str]) -> list[Verdict]:
    """Return the verdict on every case of a file, beside which others lie."""
    path = folder / "judged.yaml"
    path.write_text(text, encoding="utf-8")
    for name, content in others:
        (folder / name).write_text(content, encoding="utf-8")
    return [analyse(scenario).verdict for scenario in torch_scenarios.load(path)]


REACHED = {
    "a step": SUM + "    expect: {x: [2]}\n",
    "one of several keys": SUM + "    expect: {x: {0: [2], else: [2]}}\n",
    "an else for no rank": SUM + "    expect: {x: {[0, 1]: [2], else: [9]}}\n",
    "a key that a tensor decides": SUM + "    expect: {x: {'y[0] > 3': [2], else: [9]}}\n",
    "a step that a tensor decides": "  - {ranks: 'y[0] > 3', expect: {x: [1]}}\n",
    "a key of the last rank": SUM + "    expect: {x: {world_size - 1: [2]}}\n",
    "a key in a later turn": '  - for: {i: "range(2)"}\n    steps:\n'
    "      - compute: {x: 'x + 1'}\n        expect: {x: {'i == 1': [3]}}\n",
    "a group's key": SUM + "    expect: {x: {one: [2]}}\n",
    "behind a hang": STUCK + "  - {ranks: 0, barrier: {}, expect: {x: {0: [1]}}}\n" + HANGS,
    "behind a hang, by data": STUCK
    + "  - {ranks: 'x[0] == 1', expect: {x: {'y[0] == 7': [1]}}}\n"
    + HANGS,
    "a key of raises": SUM + "    expect: {raises: {0: none}}\n",
    "keys of a group that a step creates": "  - new_group: {name: g, ranks: [0]}\n".replace(
        "ranks: [0]", "group_ranks: [0]"
    )
    + "  - {ranks: g, compute: {x: x + 1}, expect: {x: {g: [2]}}}\n",
}
UNREACHED = {
    "a step of no rank": (
        "  - {ranks: rank > 1, compute: {x: x + 1}, expect: {x: [9]}}\n",
        "no rank takes `compute`, so that its expectation is never compared",
    ),
    "an expectation alone of no rank": (
        "  - {name: look, ranks: 'rank < 0', expect: {x: [9]}}\n",
        "no rank takes `look`, so that its expectation is never compared",
    ),
    "a key of no rank": (
        SUM + "    expect: {x: {rank > 1: [9], else: [2]}}\n",
        "no rank that takes `all_reduce` reaches the key `rank > 1` of `x`",
    ),
    "a key of a rank that does not take the step": (
        "  - {ranks: 0, compute: {x: x + 1}, expect: {x: {1: [9], else: [2]}}}\n",
        "no rank that takes `compute` reaches the key `1` of `x`",
    ),
    "a key behind one that has all its ranks": (
        SUM + "    expect: {x: {rank >= 0: [2], 1: [9]}}\n",
        "no rank that takes `all_reduce` reaches the key `1` of `x`",
    ),
    "a key of raises": (
        SUM + "    expect: {raises: {rank > 5: timeout, else: none}}\n",
        "no rank that takes `all_reduce` reaches the key `rank > 5` of `raises`",
    ),
    "a step that a tensor decides": (
        "  - {name: look, ranks: 'y[0] > 8', expect: {x: [9]}}\n",
        "no rank takes `look`, so that its expectation is never compared",
    ),
    "a key at the end": (
        SUM + "expect: {x: {rank > 1: [9], else: [2]}}\n",
        "no rank reaches the key `rank > 1` of `x`",
    ),
    "a loop without turns": (
        (
            '  - for: {i: "range(world_size - 2)"}\n    steps:\n'
            "      - {name: look, expect: {x: [9]}}\n"
        ),
        "no rank takes `look`, so that its expectation is never compared",
    ),
    "behind a hang": (
        STUCK + "  - {ranks: rank > 1, barrier: {}, expect: {x: [1]}}\n" + HANGS,
        "no rank takes `barrier`, so that its expectation is never compared",
    ),
    "a rank that is blocked": (
        STUCK + HANGS.replace("}", ", blocked: {0: stuck, rank > 5: stuck}}"),
        "no rank reaches the key `rank > 5` of `blocked`",
    ),
}


@pytest.mark.parametrize("steps", REACHED.values(), ids=REACHED)
def test_what_some_rank_is_selected_for_is_reached(steps: str, tmp_path: Path) -> None:
    verdict = checked(HEAD + steps, tmp_path)
    assert codes(verdict) == []
    assert verdict.status == "PASSED"


@pytest.mark.parametrize(("steps", "says"), UNREACHED.values(), ids=UNREACHED)
def test_what_no_rank_is_selected_for_fails(steps: str, says: str, tmp_path: Path) -> None:
    verdict = checked(HEAD + steps, tmp_path)
    assert codes(verdict) == ["expectation_unreached"]
    assert verdict.status == "FAILED"
    assert verdict.findings[0].prose == says
    assert verdict.findings[0].mark is not None


def test_a_finding_stands_at_its_key(tmp_path: Path) -> None:
    text = HEAD + SUM + "    expect:\n      x:\n        0: [2]\n        rank > 1: [9]\n"
    mark = checked(text, tmp_path).findings[0].mark
    assert mark is not None
    assert (mark.line, mark.column) == (9, 9)


def test_a_run_fails_as_the_analysis_does(tmp_path: Path) -> None:
    assert codes(ran(HEAD + SUM + "    expect: {x: {rank > 1: [9]}}\n", tmp_path)) == [
        "expectation_unreached"
    ]


# ---------------------------------------------------------------------------- over all cases

WORLDS = "world_size: n\nmatrix: {n: [2, 4]}\ntensors: {x: [1]}\nsteps:\n"


@pytest.mark.parametrize(
    "steps",
    [
        "  - all_reduce: {tensor: x}\n    expect: {x: {3: [4], else: [n]}}\n",
        "  - {ranks: 3, compute: {x: x + 1}, expect: {x: [2]}}\n",
        '  - for: {i: "range(n - 2)"}\n    steps:\n      - barrier: {}\n        expect: {x: [1]}\n',
        "  - {ranks: 3, compute: {x: x + 1}}\n",
        "  - {ranks: 'rank == 3', compute: {x: x + 1}}\n",
        '  - for: {i: "range(n - 2)"}\n    steps:\n      - barrier: {}\n',
    ],
)
def test_what_one_case_reaches_is_reached_in_the_file(steps: str, tmp_path: Path) -> None:
    for verdict in judged(WORLDS + steps, tmp_path):
        assert verdict.status == "PASSED"
        assert verdict.warnings == ()


@pytest.mark.parametrize("key", ["7", "rank == 7"])
def test_what_no_case_reaches_fails_each(key: str, tmp_path: Path) -> None:
    steps = f"  - all_reduce: {{tensor: x}}\n    expect: {{x: {{{key}: [9], else: [n]}}}}\n"
    for verdict in judged(WORLDS + steps, tmp_path):
        assert codes(verdict) == ["expectation_unreached"]


def test_the_cases_are_those_of_the_file_and_not_of_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "judged.yaml"
    steps = "  - all_reduce: {tensor: x}\n    expect: {x: {3: [4], else: [n]}}\n"
    path.write_text(WORLDS + steps, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path, sets={"n": "2"})
    assert analyse(scenario).verdict.status == "PASSED"


PART = """\
inputs: [who]
steps:
  - ranks: who
    barrier: {group: who}
    expect: {"group_rank(who)": {0: 0, 3: 0}}
"""
USES = """\
world_size: 4
groups: {low: [0, 1], high: [3, 2]}
steps:
  - use: {file: part.yaml, with: {who: low}}
"""


def test_a_used_part_is_judged_over_all_its_uses(tmp_path: Path) -> None:
    part = ("part.yaml", PART.replace("3: 0", "2: 0"))
    (alone,) = judged(USES, tmp_path, part)
    assert codes(alone) == ["expectation_unreached"]
    both = USES + "  - use: {file: part.yaml, with: {who: high}}\n"
    (verdict,) = judged(both, tmp_path, part)
    assert codes(verdict) == []


def test_a_step_of_no_rank_in_a_used_part_has_no_warning(tmp_path: Path) -> None:
    part = ("part.yaml", "inputs: []\nsteps:\n  - {ranks: 9, barrier: {}}\n")
    (verdict,) = judged("world_size: 2\nsteps:\n  - use: {file: part.yaml}\n", tmp_path, part)
    assert verdict.status == "PASSED"
    assert verdict.warnings == ()


# ---------------------------------------------------------------------------- steps


def test_a_step_of_no_rank_behind_a_hang_has_a_warning(tmp_path: Path) -> None:
    verdict = checked(HEAD + STUCK + "  - {ranks: rank > 1, barrier: {}}\n" + HANGS, tmp_path)
    assert verdict.status == "PASSED"
    assert [warning.message for warning in verdict.warnings] == ["no rank takes `barrier`"]


def test_a_long_loop_is_not_counted_to_its_end(tmp_path: Path) -> None:
    loops = '  - for: {i: "range(230)"}\n    steps:\n      - for: {j: "range(230)"}\n'
    steps = loops + "        steps:\n          - {ranks: 'i + j < 0', barrier: {}}\n"
    text = HEAD + STUCK + steps + HANGS
    verdict = checked(text, tmp_path)
    assert verdict.status == "PASSED"
    assert verdict.warnings == ()


# ---------------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "  - {ranks: 2, barrier: {}}\n",
        HEAD + "  - {ranks: [0, 5], barrier: {}}\n",
        HEAD + SUM + "    expect: {x: {7: [9]}}\n",
        HEAD + SUM + "    expect: {raises: {2: timeout}}\n",
        HEAD + SUM + "expect: {raises: {2: timeout}}\n",
        HEAD + SUM + "expect: {x: {2: [2]}}\n",
        HEAD + STUCK + HANGS.replace("}", ", blocked: {2: stuck}}"),
        HEAD + "  - {ranks: 0, fault: kill}\nexpect: {outcome: crash, dies: {2: SIGKILL}}\n",
        HEAD.replace("x: [1]", "x: {0: [1], 2: [2]}") + SUM,
        HEAD.replace("world_size: 2", 'world_size: "1 + 1"') + "  - {ranks: 2, barrier: {}}\n",
        HEAD.replace("world_size: 2", "world_size: 2\nparameters: {n: 2}")
        + "  - {ranks: 2, barrier: {}}\n",
    ],
)
def test_a_rank_beyond_the_world_is_invalid(text: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        checked(text, tmp_path)
    assert [problem.code for problem in caught.value.problems] == ["rank_out_of_range"]


@pytest.mark.parametrize(
    "text",
    [
        (
            "world_size: n\nparameters: {n: 2}\nsteps:\n  - {ranks: [0, 5], fault: exit}\n"
            "  - {ranks: 1, sleep: 0s}\nexpect: {outcome: crash, dies: {0: exit 1}}\n"
        ),
        'world_size: "n + 1"\nmatrix: {n: [1]}\nsteps:\n  - {ranks: [0, 1, 5], barrier: {}}\n',
    ],
)
def test_a_rank_beyond_a_world_that_varies_is_passed_over(text: str, tmp_path: Path) -> None:
    assert checked(text, tmp_path).status == "PASSED"


def test_a_rank_beyond_the_world_is_passed_over_in_a_used_part_and_not_where_it_is_handed_in(
    tmp_path: Path,
) -> None:
    part = ("part.yaml", "inputs: [who]\nsteps:\n  - {ranks: who, barrier: {}}\n")
    (verdict,) = judged(
        "world_size: 2\nsteps:\n  - use: {file: other.yaml}\n",
        tmp_path,
        part,
        ("other.yaml", "inputs: []\nsteps:\n  - {ranks: [0, 1, 9], barrier: {}}\n"),
    )
    assert verdict.status == "PASSED"
    handed = "world_size: 2\nsteps:\n  - use: {file: part.yaml, with: {who: [0, 9]}}\n"
    with pytest.raises(ScenarioError) as caught:
        judged(handed, tmp_path)
    assert [problem.code for problem in caught.value.problems] == ["rank_out_of_range"]
