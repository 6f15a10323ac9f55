"""Versions of torch: what a range says, which section is laid over which, where a file is meant."""

from __future__ import annotations

import sys
from importlib import metadata
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from torch_scenarios.cli import cli
from torch_scenarios.errors import ScenarioError, UnsupportedError
from torch_scenarios.execution.backends import choose_backend
from torch_scenarios.language import load
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.groups import plan
from torch_scenarios.model.scenario import Section, versions_between
from torch_scenarios.model.versions import VersionRange, find_torch_version, release_of
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.verdict import judge

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.model.scenario import Scenario

STEPS = "world_size: 2\ntensors: {x: [1, 2]}\nsteps:\n  - all_reduce: {tensor: x}\n"


def scenario(tmp_path: Path, text: str) -> Scenario:
    path = tmp_path / "case.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path)[0]


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (">=2.14", ["2.14.0", "2.14.1+cu130", "2.15.0a0+git1", "3.0"], ["2.13.9", "2.6.0", "1.99"]),
        (">2.13", ["2.14.0", "3.0.0"], ["2.13.1", "2.13.0+cpu", "2.6"]),
        ("<=2.13", ["2.13.1", "2.6.0"], ["2.14.0"]),
        ("==2.13", ["2.13.0+cpu", "2.13.7"], ["2.1.3", "2.14.0", "2.130.0"]),
        ("!=2.13.1", ["2.13.0", "2.14"], ["2.13.1+cpu"]),
        (" >= 2.7 , <2.14 ", ["2.7.0", "2.13.9", "2.10.0"], ["2.6.0", "2.14.0"]),
    ],
)
def test_a_range_holds_as_far_as_it_is_written(
    text: str, inside: list[str], outside: list[str]
) -> None:
    found = VersionRange.read(text)
    assert [version for version in [*inside, *outside] if found.holds(version)] == inside
    assert VersionRange.read(str(found)) == found


@pytest.mark.parametrize("text", ["", "2.7", "~=2.7", ">=", ">=2.x", ">=2.7;<3", ">=2.7,", "=>2.7"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="names no versions of torch"):
        VersionRange.read(text)


def test_a_text_that_is_no_version_is_refused() -> None:
    with pytest.raises(ValueError, match="not a version of torch"):
        release_of("newest")


def test_one_version_meets_every_set_of_conditions() -> None:
    texts = (">=2.14", "<2.7", "==2.13.1", "!=2.13", ">2.6.1", "<=2.14")
    sections = [Section(torch=VersionRange.read(text)) for text in texts]
    found = versions_between(sections)
    everything = {
        tuple(each.holds(None, f"2.{minor}.{patch}") for each in sections)
        for minor in range(20)
        for patch in range(5)
    }
    assert found[0] is None
    assert everything <= {
        tuple(each.holds(None, version) for each in sections) for version in found
    }


LAID = """\
expect:
  outcome: completes
  "torch>=2.14": {x: [3, 3]}
  gloo: {x: [4, 4], raises: timeout}
  "gloo torch>=2.14": {x: [5, 5]}
  "torch>=2.15": {x: [6, 6]}
"""


@pytest.mark.parametrize(
    ("backend", "torch", "first"),
    [
        ("nccl", "2.13.0", None),
        ("gloo", "2.13.0", "4"),
        ("nccl", "2.14.0", "3"),
        ("gloo", "2.14.0", "5"),
        ("nccl", "2.15.0", "6"),
        ("gloo", "2.15.0", "5"),
        (None, None, None),
    ],
)
def test_what_asks_for_more_is_laid_over_what_asks_for_less(
    tmp_path: Path, backend: str | None, torch: str | None, first: str | None
) -> None:
    found = scenario(tmp_path, STEPS + LAID).expect.on(backend, torch)
    values = [value.wanted for value in found.at_end.values]
    assert len(values) == (0 if first is None else 1)
    assert all(f"{first}" in str(value) for value in values)
    assert (found.at_end.raises is not None) == (backend == "gloo")


def test_check_judges_the_sections_of_every_version(tmp_path: Path) -> None:
    wrong = '  "gloo torch>=2.99": {diagnosis: circular_wait}\n'
    case = scenario(tmp_path, STEPS + "expect:\n  x: [2, 4]\n" + wrong)
    assert analyse(case).verdict.status == "FAILED"
    assert analyse(case, torch="2.14.1").verdict.status == "PASSED"
    assert analyse(case, DEFAULT, "nccl").verdict.status == "PASSED"
    assert analyse(case, DEFAULT, "gloo", torch="2.99").verdict.status == "FAILED"


def test_a_section_for_versions_that_the_file_is_not_meant_for_is_not_judged(
    tmp_path: Path,
) -> None:
    wrong = 'expect:\n  x: [2, 4]\n  "torch<2.7": {diagnosis: circular_wait}\n'
    assert analyse(scenario(tmp_path, STEPS + wrong)).verdict.status == "FAILED"
    assert (
        analyse(scenario(tmp_path, 'torch: ">=2.7"\n' + STEPS + wrong)).verdict.status == "PASSED"
    )


def test_a_run_is_held_against_the_torch_that_ran(tmp_path: Path) -> None:
    text = STEPS + 'expect:\n  x: [2, 4]\n  "gloo torch>=2.14": {outcome: error}\n'
    analysis = analyse(scenario(tmp_path, text))
    assert analysis.predicted is not None
    for version, status in (("2.13.0+cpu", "PASSED"), ("2.14.1", "FAILED")):
        run = replace(analysis.predicted, backend="gloo", environment={"torch": version})
        assert judge(plan(analysis.scenario), analysis.predicted, run).status == status


def test_a_scenario_is_unsupported_where_it_is_not_meant_for_that_torch(tmp_path: Path) -> None:
    case = scenario(tmp_path, 'torch: ">=2.7"\n' + STEPS)
    torch: Any = SimpleNamespace(__version__="2.6.0+cpu")
    with pytest.raises(UnsupportedError, match=r"meant for torch >=2\.7; this is torch 2\.6\.0"):
        choose_backend(torch, "gloo", plan(case), share_gpu=False, here=2)
    assert analyse(case, torch="2.6.0").verdict.status == "UNSUPPORTED"
    assert analyse(case, torch="2.7.0").verdict.status == "PASSED"
    assert analyse(case).verdict.status == "PASSED"


def test_a_strategy_that_a_version_cannot_run_is_unsupported_there(tmp_path: Path) -> None:
    text = """
world_size: 2
groups: {mesh: {shape: [2], dims: [dp]}}
tensors: {x: "random([4, 2], 1)", y: "random([4, 2], 2)"}
models:
  net:
    layers: [up: {Linear: {in_features: 2, out_features: 2}}]
    loss: mse_loss
    optimizer: {SGD: {lr: 0.1}}
    parallel: [fully_shard: {mesh: mesh.dp}]
steps: [train: {model: net, input: x, target: y, batch: mesh.dp}]
"""
    case = scenario(tmp_path, text)
    told = analyse(case, torch="2.6.0").verdict
    assert told.status == "UNSUPPORTED"
    assert "record_event" in (told.reason or "")
    assert analyse(case, torch="2.13.0").verdict.status == "PASSED"


def test_check_takes_a_version(tmp_path: Path) -> None:
    path = tmp_path / "case.yaml"
    path.write_text('torch: ">=2.7"\n' + STEPS, encoding="utf-8")
    found = CliRunner().invoke(cli, ["check", str(path), "--torch", "2.6"])
    assert found.exit_code == 0
    assert "it is meant for torch >=2.7; this is torch 2.6" in found.output
    assert CliRunner().invoke(cli, ["check", str(path), "--torch", "new"]).exit_code == 2


def test_a_tensor_called_torch_may_be_compared(tmp_path: Path) -> None:
    text = (
        STEPS.replace("x", "torch")
        + 'expect:\n  "torch >= 2": {0: [true, true], 1: [true, true]}\n'
    )
    assert analyse(scenario(tmp_path, text)).verdict.status == "PASSED"


def test_more_sections_than_can_be_told_apart_are_refused(tmp_path: Path) -> None:
    sections = "".join(f'  "torch>=3.{minor}": {{}}\n' for minor in range(17))
    with pytest.raises(ScenarioError, match="too_many_sections"):
        scenario(tmp_path, f"{STEPS}expect:\n{sections}")


def test_the_version_that_is_installed_is_that_of_its_metadata() -> None:
    try:
        known = metadata.version("torch")
    except metadata.PackageNotFoundError:
        known = None
    find_torch_version.cache_clear()
    assert find_torch_version() == known


def test_a_folder_that_an_installer_left_behind_is_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch-1.0.0.dist-info").mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path / "none"), str(tmp_path), *sys.path])
    find_torch_version.cache_clear()
    assert find_torch_version() != "1.0.0"
    (tmp_path / "torch-1.0.0.dist-info" / "METADATA").write_text("Name: torch\nVersion: 1.0.0\n")
    find_torch_version.cache_clear()
    assert find_torch_version() == "1.0.0"
    find_torch_version.cache_clear()
