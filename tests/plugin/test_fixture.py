"""The fixture `run_scenario`: scenarios from tests in Python, on real Gloo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.pytest_plugin.items import RunScenario

pytestmark = pytest.mark.torch
pytest_plugins = ["pytester"]

GOOD = """
world_size: 2
parameters: {factor: 1}
tensors: {x: "full(2, factor * (rank + 1))"}
steps:
  - all_reduce: {tensor: x}
    expect: {x: "full(2, factor * 3)"}
"""


def test_a_text_runs_and_gives_its_traces(run_scenario: RunScenario) -> None:
    result = run_scenario(GOOD)
    assert result.verdict.status == "PASSED"
    observed = result.verdict.observed
    assert observed is not None
    assert observed.backend == "gloo"
    assert [len(rank.events) for rank in observed.ranks] == [1, 1]


def test_a_mapping_runs(run_scenario: RunScenario) -> None:
    result = run_scenario(
        {
            "world_size": 2,
            "tensors": {"x": [1]},
            "steps": [{"all_reduce": {"tensor": "x"}, "expect": {"x": [2]}}],
        }
    )
    assert result.verdict.status == "PASSED"


def test_parameters_are_replaced(run_scenario: RunScenario) -> None:
    result = run_scenario(GOOD, sets={"factor": 5})
    assert result.scenario is not None
    assert result.scenario.constants == {"factor": 5}
    assert result.verdict.status == "PASSED"


def test_a_path_begins_at_the_root_folder(
    run_scenario: RunScenario, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    corpus = pytestconfig.rootpath / "scenarios"
    path = next(path for path in sorted(corpus.rglob("*.yaml")) if "matrix" not in path.read_text())
    assert run_scenario(str(path.relative_to(pytestconfig.rootpath))).verdict.status == "PASSED"
    assert run_scenario(path).verdict.status == "PASSED"


@pytest.mark.nightly
def test_a_text_uses_what_lies_beside_the_test(pytester: pytest.Pytester) -> None:
    (pytester.mkdir("sub") / "part.yaml").write_text("inputs: [x]\nsteps:\n  - barrier:\n")
    (pytester.path / "sub" / "test_use.py").write_text(
        "def test_use(run_scenario):\n"
        "    text = 'world_size: 1\\nsteps:\\n  - use: {file: part.yaml, with: {x: 1}}\\n'\n"
        "    result = run_scenario(text)\n"
        "    assert [p.code for p in result.verdict.problems] == []\n"
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_what_is_wrong_with_a_scenario_is_a_verdict(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    missing = run_scenario(tmp_path / "missing.yaml")
    assert [problem.code for problem in missing.verdict.problems] == ["file_not_found"]
    invalid = run_scenario("world_size: 2\nstep: []\n")
    assert invalid.verdict.status == "INVALID"
    wrong = run_scenario(GOOD.replace("factor * 3", "factor * 4"))
    assert wrong.verdict.status == "FAILED"
    assert wrong.verdict.observed is None


def test_one_of_several_cases_must_be_named(run_scenario: RunScenario) -> None:
    matrix = GOOD.replace("parameters: {factor: 1}", "matrix: {factor: [1, 2]}")
    with pytest.raises(ValueError, match=r"2 cases: 1, 2; say which with case="):
        run_scenario(matrix)
    with pytest.raises(ValueError, match=r"no case '3'.*Its cases: 1, 2"):
        run_scenario(matrix, case="3")
    assert run_scenario(matrix, case="2").verdict.status == "PASSED"


def test_a_test_that_fails_shows_the_report(pytester: pytest.Pytester) -> None:
    wrong = GOOD.replace("factor * 3", "factor * 4")
    pytester.makepyfile(
        f"""
        def test_sum(run_scenario):
            assert run_scenario({wrong!r}).verdict.status == "PASSED"
        """
    )
    done = pytester.runpytest_subprocess("-W", "error")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        ["*Captured scenario call*", "*your expectation is wrong*", "*expected≠what the semantics*"]
    )
