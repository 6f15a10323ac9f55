"""The same checks as tests: skipped, with the reason, where there is no GPU with NCCL."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.gpu import machine, passes
from torch_scenarios.conformance import table as cells
from torch_scenarios.execution import Launcher, LaunchOptions
from torch_scenarios.execution import backends as nccl
from torch_scenarios.language import load
from torch_scenarios.pipeline.attempts import analyse, execute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch_scenarios.model.scenario import Scenario

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
#: ranks that the tests need; on fewer GPUs they share
RANKS = 8


def without_a_gpu() -> str:
    """Return why the tests here cannot run; nothing where they can."""
    found = machine.machine()
    if found["nccl"] == "none":
        return f"the installed torch {found['torch']} is built without NCCL"
    return "" if int(found["gpus"]) else "torch sees no GPU here"


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    reason = without_a_gpu()
    if reason:
        pytest.skip(reason)
    with Launcher(LaunchOptions(backend="nccl", share_gpu=True)) as started:
        started.reserve(RANKS)
        yield started


def cases(folder: str) -> list[Scenario]:
    return [case for path in sorted((ROOT / folder).glob("*.yaml")) for case in load(path)]


@pytest.mark.parametrize("scenario", cases("scenarios/nccl"), ids=lambda case: case.case)
def test_the_scenarios_about_nccl_are_green(scenario: Scenario, launcher: Launcher) -> None:
    case = passes.told(execute(analyse(scenario), launcher), "nccl")
    assert case.status in {"PASSED", "OPEN", "FORESEEN"}, "\n".join(case.words)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16"])
def test_what_everybody_uses_is_the_same_as_the_reference(
    dtype: str, launcher: Launcher, tmp_path: Path
) -> None:
    (own,) = cells.list_cells((dtype,)).values()
    seen = cells.observe(launcher, own, tmp_path)
    wrong = {
        str(cell): each for cell, each in seen.items() if each.outcome not in {"same", "refuses"}
    }
    assert wrong == {}
    assert seen[cells.Cell(operation="all_reduce", op="sum", dtype=dtype)].outcome == "same"


def test_a_hang_on_the_device_leaves_a_machine_that_works(launcher: Launcher) -> None:
    (hang,) = load(ROOT / "scenarios/nccl/hang_on_the_device.yaml")
    (after,) = load(ROOT / "scenarios/nccl/streams.yaml")
    began_s = time.monotonic()
    verdict = execute(analyse(hang), launcher).verdict
    assert verdict.status == "PASSED", verdict.findings
    assert verdict.observed is not None
    assert any("flight recorder" in note for note in verdict.observed.notes)
    assert execute(analyse(after), launcher).verdict.status == "PASSED"
    assert time.monotonic() - began_s < hang.timeout_s


def test_the_watchdog_is_told_to_leave_the_workers_alone() -> None:
    assert nccl.ENVIRONMENT["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
