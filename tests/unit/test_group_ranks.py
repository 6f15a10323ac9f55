"""The ranks of a group are the same for everybody, however they are stated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from torch_scenarios.errors import ScenarioError
from torch_scenarios.language import load
from torch_scenarios.model.groups import plan

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.errors import Problem
    from torch_scenarios.model.plan import Plan


def planned(groups: str, tmp_path: Path) -> Plan:
    file = tmp_path / "it.yaml"
    file.write_text(
        f"world_size: 4\ngroups:\n  odd: [1, 3]\n  pair: {{size: 2}}\n  g: {groups}\n"
        "steps:\n  - barrier: {}\n",
        encoding="utf-8",
    )
    (scenario,) = load(file)
    return plan(scenario)


def refused(groups: str, tmp_path: Path) -> Problem:
    with pytest.raises(ScenarioError) as caught:
        planned(groups, tmp_path)
    (problem,) = caught.value.problems
    assert problem.mark is not None
    assert problem.mark.line == 5
    assert problem.hint
    return problem


@pytest.mark.parametrize(
    ("stated", "ranks"),
    [
        ("odd", (1, 3)),
        ('"group_ranks(odd)"', (1, 3)),
        ('"rank in odd"', (1, 3)),
        ('"[r for r in range(world_size) if r not in odd]"', (0, 2)),
        ('"range(group_size(odd))"', (0, 1)),
        ('"group_rank(odd) >= 0"', (1, 3)),
        ('"rank > 1"', (2, 3)),
        ("{ranks: [3, odd]}", None),
        ("[0, 'world_size - 1']", (0, 3)),
    ],
)
def test_the_name_of_a_group_means_its_ranks_to_everybody(
    stated: str, ranks: tuple[int, ...] | None, tmp_path: Path
) -> None:
    if ranks is None:
        assert refused(stated, tmp_path).code == "bad_group"
    else:
        assert [group.ranks for group in planned(stated, tmp_path).names["g"]] == [ranks]


@pytest.mark.parametrize(
    "stated",
    [
        "pair",
        '"group_ranks(pair)"',
        '"range(rank)"',
        "{ranks: {0: [0, 1], else: [2, 3]}}",
        '{partition: "[[rank], [3 - rank]]"}',
        '{size: "rank + 1"}',
        '{shape: ["rank + 1", 4], dims: [a, b]}',
        '[0, "full(2, rank)"]',
    ],
)
def test_ranks_that_would_disagree_are_told_so(stated: str, tmp_path: Path) -> None:
    assert refused(stated, tmp_path).code == "group_differs"


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ('"[0.5, 1]"', "[0.5, 1], not a list of integers"),
        ('{size: "1.5"}', "1.5, not an integer"),
        ('{size: "1 / 2"}', "0.5, not an integer"),
        ("{size: null}", "nothing, not an integer"),
        ('{shape: "world_size", dims: [a]}', "4, not a list of integers"),
        ('{shape: "[exp(1000)]", dims: [a]}', "[inf], not a list of integers"),
        ('{partition: "3"}', "3, not a list of lists of ranks"),
        ('{partition: "[0, 1]"}', "0, not a list of integers"),
        ('{partition: "[[0.5], [1]]"}', "[0.5], not a list of integers"),
    ],
)
def test_what_is_no_rank_is_not_rounded_to_one(stated: str, said: str, tmp_path: Path) -> None:
    problem = refused(stated, tmp_path)
    assert problem.message == f"the group `g` states {said}"


def test_a_mesh_may_leave_the_last_ranks_out(tmp_path: Path) -> None:
    made = planned("{shape: [3, 1], dims: [a, b]}", tmp_path)
    assert [group.ranks for group in made.names["g.a"]] == [(0, 1, 2)]
    assert [group.ranks for group in made.names["g.b"]] == [(0,), (1,), (2,)]
    assert made.group("g.a", 3) is None


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ("[2, 3]", "a mesh of [2, 3] is larger than a world of 4"),
        ("[0, 4]", "a mesh of [0, 4] holds no rank"),
        ("[-2, -2]", "a mesh of [-2, -2] holds no rank"),
    ],
)
def test_a_mesh_that_torch_refuses_is_refused(shape: str, why: str, tmp_path: Path) -> None:
    (creation,) = planned(f"{{shape: {shape}, dims: [a, b]}}", tmp_path).creations[2:]
    assert creation.refused == why
