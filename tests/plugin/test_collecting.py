"""What the pytest plugin collects, and what it leaves alone. Nothing runs here; no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytest_plugins = ["pytester"]

SUM = """\
world_size: 2
tags: [sums, sub-word, skip]
tensors: {x: [1, 2]}
steps:
  - all_reduce: {tensor: x}
    expect: {x: [2, 4]}
"""
MATRIX = SUM.replace("tensors:", "matrix: {dtype: [int64, float32], n: [1, 2]}\ntensors:")
LIBRARY = "inputs: [x]\nsteps:\n  - all_reduce: {tensor: x}\n"
COMPOSE = "services:\n  steps: {image: python}\n"


@pytest.fixture
def collected(pytester: pytest.Pytester) -> Callable[..., list[str]]:
    """Collect with some arguments; return the node ids, or what pytest said without any."""

    def collect(*arguments: str) -> list[str]:
        done = pytester.runpytest_inprocess("--collect-only", "-q", *arguments)
        found = [line for line in done.outlines if "::" in line and " " not in line]
        return found or [*done.outlines, *done.errlines]

    return collect


def write(pytester: pytest.Pytester, **files: str) -> None:
    for name, text in files.items():
        path = pytester.path / name.replace("__", "/")
        path = path.with_name(path.name.replace("_yaml", ".yaml"))
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text, encoding="utf-8")


def test_nothing_is_collected_where_nobody_asks(
    pytester: pytest.Pytester, collected: Callable[..., list[str]]
) -> None:
    write(pytester, scenarios__sum_yaml=SUM)
    assert "no tests collected" in collected()[-1]
    assert "no tests collected" in collected("scenarios")[-1]


def test_nothing_is_imported_where_nobody_asks(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import sys

        def pytest_sessionfinish():
            heavy = {"numpy", "torch", "yaml", "rich", "torch_scenarios.plugin",
            "torch_scenarios.language",
                     "torch_scenarios.pipeline.run", "torch_scenarios.execution"}
            print("imported:", sorted(heavy & set(sys.modules)))
        """
    )
    pytester.makepyfile("def test_of_somebody_else(): pass")
    done = pytester.runpytest_subprocess("-s")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines("*imported: [[]]")


def test_other_peoples_yaml_is_left_alone_and_told(pytester: pytest.Pytester) -> None:
    write(pytester, compose_yaml=COMPOSE, tests__sum_yaml=SUM, tests__settings_yaml="a: 1")
    done = pytester.runpytest_inprocess("--collect-only", "--scenarios")
    done.stdout.fnmatch_lines(
        ["*2 other YAML files left alone (compose.yaml, settings.yaml)", "*ScenarioItem sum*"]
    )
    done.stdout.fnmatch_lines("*1 test collected*")


def test_a_broken_scenario_is_not_taken_for_somebody_elses(
    pytester: pytest.Pytester, collected: Callable[..., list[str]]
) -> None:
    write(pytester, tests__broken_yaml="world_size: 2\n\tsteps: [")
    assert collected("--scenarios") == ["tests/broken.yaml::broken"]


def test_a_named_file_is_a_scenario_whatever_it_holds(
    pytester: pytest.Pytester, collected: Callable[..., list[str]]
) -> None:
    write(pytester, compose_yaml=COMPOSE)
    assert collected("--scenarios", "compose.yaml") == ["compose.yaml::compose"]


def test_every_yaml_below_scenario_paths_is_one(
    pytester: pytest.Pytester, collected: Callable[..., list[str]]
) -> None:
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\nscenario_paths = ["scenarios"]\n')
    write(pytester, compose_yaml=COMPOSE, other__sum_yaml=SUM)
    write(pytester, scenarios__sub__sum_yaml=SUM, scenarios__compose_yaml=COMPOSE)
    expected = ["scenarios/compose.yaml::compose", "scenarios/sub/sum.yaml::sum"]
    assert sorted(collected()) == expected


def test_scenario_paths_run_beside_testpaths_unless_paths_are_named(
    pytester: pytest.Pytester, collected: Callable[..., list[str]]
) -> None:
    pytester.makeini("[pytest]\ntestpaths = tests\nscenario_paths = scenarios\n")
    write(pytester, scenarios__sum_yaml=SUM)
    write(pytester, **{"tests__test_a.py": "def test_a(): pass"})
    both = ["tests/test_a.py::test_a", "scenarios/sum.yaml::sum"]
    assert collected() == both
    assert collected("tests") == both[:1]
    assert collected("scenarios") == both[1:]


def test_a_library_has_no_items(
    pytester: pytest.Pytester, collected: Callable[..., list[str]]
) -> None:
    pytester.makeini("[pytest]\nscenario_paths = scenarios\n")
    write(pytester, scenarios__part_yaml=LIBRARY)
    assert "no tests collected" in collected()[-1]


def test_cases_are_named_after_their_matrix_values(
    pytester: pytest.Pytester, collected: Callable[..., list[str]]
) -> None:
    write(pytester, many_yaml=MATRIX)
    ids = [f"many.yaml::{dtype}-{n}" for dtype in ("int64", "float32") for n in (1, 2)]
    assert collected("--scenarios") == ids
    assert collected("--scenarios", "many.yaml::int64-2") == [ids[1]]
    whole = "many.yaml::many[dtype=int64,n=2]"
    assert collected("--scenarios", whole) == [whole]


def test_tags_are_known_markers_and_words(
    pytester: pytest.Pytester, collected: Callable[..., list[str]]
) -> None:
    write(pytester, sum_yaml=SUM, other_yaml=SUM.replace("sums", "others"))
    asked = ("--scenarios", "--strict-markers", "-W", "error")
    assert collected(*asked, "-m", "sums") == ["sum.yaml::sum"]
    assert collected(*asked, "-m", "sub-word and scenario and not sums") == ["other.yaml::other"]
    assert collected(*asked, "-k", "others") == ["other.yaml::other"]


def test_an_invalid_file_is_found_under_whatever_name_was_asked_for(
    pytester: pytest.Pytester, collected: Callable[..., list[str]]
) -> None:
    write(pytester, bad_yaml="world_size: two\nsteps: []\n")
    assert collected("--scenarios", "bad.yaml::int64") == ["bad.yaml::int64"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--scenarios", "--scenario-timeout=soon"), "--scenario-timeout: 'soon' is not a number"),
        (("--scenarios", "-o", "scenario_timeout=-1"), "scenario_timeout: '-1' is not a number"),
        (("-o", "scenario_paths=nowhere"), "there is no file or folder *nowhere"),
    ],
)
def test_a_wrong_option_is_a_usage_error(
    arguments: tuple[str, ...], told: str, pytester: pytest.Pytester
) -> None:
    done = pytester.runpytest_inprocess(*arguments)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(f"ERROR: *{told}*")
