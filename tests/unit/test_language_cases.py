"""Parameters, the matrix, `--set`, and which files there are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.expressions.values import Constant, TypedValue
from torch_scenarios.language import discover, load
from torch_scenarios.limits import Limits

if TYPE_CHECKING:
    from torch_scenarios.model.scenario import Scenario

STEPS = "steps: [{barrier: }]\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "it.yaml"


def cases(file: Path, text: str, **how: Any) -> tuple[Scenario, ...]:
    file.write_text(text, encoding="utf-8")
    return load(file, **how)


def problems(file: Path, text: str, **how: Any) -> tuple[Problem, ...]:
    with pytest.raises(ScenarioError) as caught:
        cases(file, text, **how)
    return caught.value.problems


def test_the_matrix_makes_one_case_for_each_combination(file: Path) -> None:
    found = cases(
        file,
        "name: sums\nworld_size: n\nmatrix:\n  dtype: [float32, int64]\n  n: [2, 3]\n"
        f"tensors: {{x: {{dtype: dtype, value: [1]}}}}\n{STEPS}",
    )
    assert [scenario.case for scenario in found] == [
        "sums[dtype=float32,n=2]",
        "sums[dtype=float32,n=3]",
        "sums[dtype=int64,n=2]",
        "sums[dtype=int64,n=3]",
    ]
    assert [scenario.world_size for scenario in found] == [2, 3, 2, 3]
    last = found[-1].tensors["x"]
    assert isinstance(last, TypedValue)
    assert last.dtype == Constant(value="int64")
    assert {scenario.name for scenario in found} == {"sums"}


def test_a_parameter_may_depend_on_those_before_it_and_on_the_matrix(file: Path) -> None:
    found = cases(
        file,
        "world_size: 2\nmatrix: {n: [1, 2]}\n"
        "parameters: {m: n * 10, word: even, list: [n, 'm + 1', 2], flag: true, same: n}\n" + STEPS,
    )
    assert [scenario.constants for scenario in found] == [
        {"n": 1, "m": 10, "word": "even", "list": [1, 11, 2], "flag": True, "same": 1},
        {"n": 2, "m": 20, "word": "even", "list": [2, 21, 2], "flag": True, "same": 2},
    ]


def test_a_parameter_may_depend_on_a_plain_world_size(file: Path) -> None:
    (scenario,) = cases(
        file, f"world_size: 4\nparameters: {{half: world_size // 2, whole: world_size}}\n{STEPS}"
    )
    assert scenario.constants == {"half": 2, "whole": 4}
    (problem,) = problems(file, f"world_size: 4\nparameters: {{mine: rank}}\n{STEPS}")
    assert problem.code == "not_constant"


def test_set_replaces_a_parameter_typed_as_yaml(file: Path) -> None:
    text = f"world_size: n\nparameters: {{n: 2, m: n + 1, kind: float32}}\n{STEPS}"
    (scenario,) = cases(file, text, sets={"n": "4", "kind": "int64"})
    assert scenario.constants == {"n": 4, "m": 5, "kind": "int64"}
    (scenario,) = cases(file, text, sets={"m": "[1, 2]"})
    assert scenario.constants["m"] == [1, 2]
    (scenario,) = cases(file, text, sets={"n": "1 + 2"})
    assert scenario.world_size == 3


def test_set_picks_one_value_of_a_matrix_key(file: Path) -> None:
    (scenario,) = cases(
        file, f"world_size: 2\nmatrix: {{dtype: [float32, int64]}}\n{STEPS}", sets={"dtype": "int8"}
    )
    assert scenario.case == "it[dtype=int8]"


def test_set_of_an_unknown_name_says_which_there_are(file: Path) -> None:
    text = f"world_size: 2\nparameters: {{width: 2}}\nmatrix: {{kind: [1]}}\n{STEPS}"
    (near,) = problems(file, text, sets={"widht": "4"})
    assert near.code == "unknown_parameter"
    assert near.hint == "did you mean `width`?"
    (far,) = problems(file, text, sets={"zzz": "4"})
    assert far.hint == "it has: kind, width"


def test_set_to_something_that_is_no_yaml_is_a_problem(file: Path) -> None:
    found = problems(file, f"world_size: 2\nparameters: {{n: 2}}\n{STEPS}", sets={"n": "[1"})
    assert found[0].code == "yaml_syntax"
    assert found[0].mark is not None
    assert found[0].mark.source.path == "--set n"


def test_the_number_of_cases_is_bounded(file: Path) -> None:
    text = f"world_size: 2\nmatrix: {{a: [1, 2, 3], b: [1, 2, 3]}}\n{STEPS}"
    assert len(cases(file, text, limits=Limits(max_matrix_cases=9))) == 9
    (problem,) = problems(file, text, limits=Limits(max_matrix_cases=8))
    assert problem.code == "too_many_cases"
    assert "--limit matrix-cases=N" in problem.message


def test_a_fault_of_every_case_is_told_once(file: Path) -> None:
    found = problems(
        file, "world_size: 2\nmatrix: {n: [1, 2, 3]}\nsteps: [{all_reduce: {tensor: y}}]\n"
    )
    assert [problem.code for problem in found] == ["unknown_name"]


def test_cases_of_one_file_do_not_share_their_names(file: Path) -> None:
    found = cases(file, "world_size: 2\nmatrix: {n: [1, 2]}\nsteps: [{name: one, barrier: }]\n")
    assert [scenario.steps[0].name for scenario in found] == ["one", "one"]
    assert [scenario.steps[0].index for scenario in found] == [0, 0]


# ---------------------------------------------------------------------- files


def test_folders_are_searched_and_files_taken_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b.yaml", "a.yml", "deep/c.yaml", ".hidden/d.yaml", "e.txt", "f.YAML.bak"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    assert [str(path) for path in discover(["."])] == ["a.yml", "b.yaml", "deep/c.yaml"]
    assert discover(["e.txt", "e.txt"]) == (Path("e.txt"),)
    assert [str(path) for path in discover(["deep", "."])] == ["deep/c.yaml", "a.yml", "b.yaml"]


def test_every_path_that_does_not_exist_is_told(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        discover([tmp_path / "one.yaml", tmp_path / "two"])
    assert [problem.code for problem in caught.value.problems] == ["file_not_found"] * 2


def test_a_set_without_a_value_is_told(file: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        cases(file, f"world_size: 2\nparameters: {{n: 1}}\n{STEPS}", sets={"n": " "})
    (problem,) = caught.value.problems
    assert problem.message == "--set n= states no value"
    assert problem.hint


TOGETHER = "world_size: 2\ncases: [{op: sum, want: 3}, {want: 2, op: max}]\n"


def test_cases_keep_values_together_that_belong_together(file: Path) -> None:
    found = cases(file, TOGETHER + STEPS)
    assert [scenario.case for scenario in found] == ["it[op=sum,want=3]", "it[op=max,want=2]"]
    assert [scenario.constants["want"] for scenario in found] == [3, 2]


def test_cases_and_a_matrix_are_a_product_with_the_keys_of_the_matrix_first(file: Path) -> None:
    found = cases(file, f"{TOGETHER}matrix: {{n: [1, 2]}}\n{STEPS}")
    assert [scenario.case for scenario in found] == [
        "it[n=1,op=sum,want=3]",
        "it[n=1,op=max,want=2]",
        "it[n=2,op=sum,want=3]",
        "it[n=2,op=max,want=2]",
    ]


def test_a_value_of_a_case_is_what_a_value_of_a_matrix_is(file: Path) -> None:
    text = "matrix: {n: [2]}\ncases: [{a: n, b: a + world_size, c: [a, word], d: 2s}]\n"
    (found,) = cases(file, f"world_size: 3\n{text}parameters: {{e: b * 2}}\n{STEPS}")
    assert found.constants == {"n": 2, "a": 2, "b": 5, "c": [2, "word"], "d": "2s", "e": 10}


def test_set_of_a_key_of_a_case_is_refused_and_of_the_matrix_is_not(file: Path) -> None:
    text = f"{TOGETHER}matrix: {{n: [1, 2]}}\n{STEPS}"
    (problem,) = problems(file, text, sets={"want": "5"})
    assert problem.code == "set_of_a_case"
    assert problem.hint is not None
    assert "it.yaml::NAME" in problem.hint
    assert [each.constants["n"] for each in cases(file, text, sets={"n": "7"})] == [7, 7]


def test_the_cases_of_a_product_are_bounded(file: Path) -> None:
    listed = ", ".join(f"{{n: {number}}}" for number in range(30))
    text = f"world_size: 2\ncases: [{listed}]\nmatrix: {{m: [1, 2, 3, 4]}}\n{STEPS}"
    (problem,) = problems(file, text, limits=Limits(max_matrix_cases=100))
    assert problem.code == "too_many_cases"
    assert "the file has 120 cases" in problem.message


def test_two_cases_of_one_name_are_refused(file: Path) -> None:
    (problem,) = problems(file, f"world_size: 2\ncases: [{{n: 1}}, {{n: '0 + 1'}}]\n{STEPS}")
    assert problem.code == "duplicate_case"
    assert "called `[n=1]`" in problem.message
