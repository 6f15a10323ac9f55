"""Backends: torch's own, one that a plugin registers, one that is not there."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from torch_scenarios.errors import LaunchError, UnsupportedError
from torch_scenarios.execution import Launcher, LaunchOptions
from torch_scenarios.language import load
from torch_scenarios.pipeline.attempts import analyse, execute

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.torch.conftest import AnalysedCase

pytestmark = pytest.mark.torch

SUM = "world_size: 2\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}}]\n"

#: a third party's module: a backend of its own name, on Gloo's transport
PLUGIN = """\
import torch.distributed as dist


def make(store, rank, size, timeout):
    return dist.ProcessGroupGloo(store, rank, size, timeout)


dist.Backend.register_backend("borrowed", make, devices=["cpu"])
"""


def skip_with_a_gpu() -> None:
    """Skip what is about machines without CUDA."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "borrowed_backend.py").write_text(PLUGIN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return "borrowed_backend"


def test_a_backend_that_a_plugin_registers_runs_scenarios(
    plugin: str, analysed: Callable[[str], AnalysedCase]
) -> None:
    with Launcher(LaunchOptions(backend="borrowed", plugins=(plugin,))) as launcher:
        trace = analysed(SUM).run_on(launcher)
    assert trace.backend == "borrowed"
    assert trace.ranks[0].events[0].writes["x"].tolist() == [2]


def test_a_backend_that_torch_lacks_is_named_and_others_go_on(
    analysed: Callable[[str], AnalysedCase],
) -> None:
    with Launcher(LaunchOptions(backend="glooo")) as launcher:
        for _ in range(2):
            with pytest.raises(LaunchError, match=r"no backend 'glooo'; it knows .*gloo"):
                analysed(SUM).run_on(launcher)


def test_a_plugin_that_cannot_be_imported_is_named(analysed: Callable[[str], AnalysedCase]) -> None:
    with (
        Launcher(LaunchOptions(plugins=("no_such_plugin",))) as launcher,
        pytest.raises(LaunchError, match="the plugin 'no_such_plugin' cannot be imported"),
    ):
        analysed(SUM).run_on(launcher)


def test_nccl_without_a_gpu_is_refused(analysed: Callable[[str], AnalysedCase]) -> None:
    skip_with_a_gpu()
    with (
        Launcher(LaunchOptions(backend="nccl")) as launcher,
        pytest.raises(LaunchError, match="--backend gloo"),
    ):
        analysed(SUM).run_on(launcher)


def test_a_scenario_meant_for_another_backend_is_unsupported(
    launcher: Launcher, analysed: Callable[[str], AnalysedCase]
) -> None:
    with pytest.raises(UnsupportedError, match="meant for nccl"):
        analysed(SUM + "backends: [nccl]\n").run_on(launcher)


def test_more_ranks_than_allowed_are_refused(analysed: Callable[[str], AnalysedCase]) -> None:
    with (
        Launcher(LaunchOptions(max_ranks=1)) as launcher,
        pytest.raises(LaunchError, match="--limit ranks=N"),
    ):
        analysed(SUM).run_on(launcher)


def test_torchs_long_spelling_runs_and_takes_the_section_of_its_backend(
    analysed: Callable[[str], AnalysedCase],
) -> None:
    with Launcher(LaunchOptions(backend="cpu:gloo")) as launcher:
        trace = analysed(SUM).run_on(launcher)
    assert trace.backend == "gloo"
    assert trace.environment["backend"] == "cpu:gloo"
    assert trace.ranks[1].events[0].writes["x"].tolist() == [2]


def test_a_scenario_for_mixed_backends_runs_on_the_part_that_the_machine_has(
    analysed: Callable[[str], AnalysedCase],
) -> None:
    skip_with_a_gpu()
    with Launcher(LaunchOptions(backend="auto")) as launcher:
        trace = analysed("backends: [cpu:gloo,cuda:nccl]\n" + SUM).run_on(launcher)
    assert trace.environment["backend"] == "cpu:gloo"
    assert trace.outcome == "completes"


def test_a_group_has_a_backend_of_its_own(analysed: Callable[[str], AnalysedCase]) -> None:
    text = """\
world_size: 2
tensors: {x: [1]}
groups: {pair: {ranks: [0, 1], backend: "cpu:gloo"}}
steps: [{all_reduce: {tensor: x, group: pair}}]
"""
    with Launcher(LaunchOptions(backend="cpu:gloo")) as launcher:
        trace = analysed(text).run_on(launcher)
    assert trace.ranks[0].events[0].writes["x"].tolist() == [2]


def test_a_group_on_nccl_is_unsupported_where_torch_has_none(
    launcher: Launcher, tmp_path: Path
) -> None:
    skip_with_a_gpu()
    path = tmp_path / "scenario.yaml"
    path.write_text(
        "world_size: 2\ntensors: {x: [1]}\ngroups: {pair: {ranks: [0, 1], backend: nccl}}\n"
        "steps: [{all_reduce: {tensor: x, group: pair}}]\n",
        encoding="utf-8",
    )
    (scenario,) = load(path)
    verdict = execute(analyse(scenario), launcher).verdict
    assert verdict.status == "UNSUPPORTED", verdict
    assert "NCCL" in str(verdict.reason)


def test_the_command_line_says_one_paragraph_where_there_is_no_gpu(tmp_path: Path) -> None:
    skip_with_a_gpu()
    path = tmp_path / "sum.yaml"
    path.write_text(SUM, encoding="utf-8")
    command = [sys.executable, "-m", "torch_scenarios.cli", "run", "--backend", "nccl", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    said = done.stdout + done.stderr
    assert said.count("un with --backend gloo.") == 1
    assert "Traceback" not in said
