"""Scenarios on JAX: what is judged, what is refused, and that nothing outlives a run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import processes
import pytest
from checkout import ROOT

import torch_scenarios
from torch_scenarios.conformance import document
from torch_scenarios.execution.frameworks import jax
from torch_scenarios.execution.frameworks.jax import JaxLauncher
from torch_scenarios.pipeline.attempts import analyse, execute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch_scenarios.verdict import Verdict

needs_jax = pytest.mark.skipif(
    find_spec("jax") is None, reason="jax is not installed: the extra `jax` has it"
)

CALL = """\
world_size: 2
tensors:
  x: "full(2, rank + 1)"
steps:
  - all_reduce: {tensor: x, op: OP}
    expect:
      x: [3, 3]
"""
REDUCE = """\
  - reduce: {tensor: x, dst: 0}
"""
#: rank 0 calls once more than rank 1
ONE_TOO_MANY = """\
world_size: 2
tensors:
  x: ones(2)
steps:
  - all_reduce: {tensor: x}
  - ranks: 0
    all_reduce: {tensor: x}
expect: {outcome: deadlock, diagnosis: missing_participant}
"""


@pytest.fixture(scope="module")
def launcher() -> Iterator[JaxLauncher]:
    with JaxLauncher() as entered:
        entered.reserve(4)
        yield entered


def judged(text: str, folder: Path, launcher: JaxLauncher) -> Verdict:
    path = folder / "judged.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    return execute(analyse(scenario), launcher).verdict


@needs_jax
@pytest.mark.parametrize(
    "name",
    [
        "p2p/send_recv",
        "p2p/batch_ring",
        "collectives/all_reduce_sum",
        "collectives/all_gather",
        "collectives/all_to_all",
        "collectives/broadcast",
        "groups/groups_even",
        "barrier/nobody_passes_early",
        "async/waits_backwards",
    ],
)
def test_what_jax_and_torch_share_passes(launcher: JaxLauncher, name: str) -> None:
    for scenario in torch_scenarios.load(ROOT / "scenarios" / f"{name}.yaml"):
        verdict = execute(analyse(scenario), launcher).verdict
        assert verdict.status == "PASSED", (verdict.reason, verdict.findings)
        assert verdict.observed is not None
        assert verdict.observed.backend == "jax"


@needs_jax
def test_the_ranks_compute_by_xla_and_have_no_torch(launcher: JaxLauncher, tmp_path: Path) -> None:
    assert judged(CALL.replace("OP", "sum"), tmp_path, launcher).status == "PASSED"
    for pid in launcher.processes():
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
        assert "jaxlib" in maps
        assert "libtorch" not in maps


@needs_jax
def test_what_is_held_against_the_reference_is_what_jax_computed(
    launcher: JaxLauncher, tmp_path: Path
) -> None:
    text = CALL.replace("OP", "max").replace("[3, 3]", "[2, 2]")
    verdict = judged(text, tmp_path, launcher)
    assert verdict.status == "PASSED"
    assert verdict.observed is not None
    (event,) = verdict.observed.ranks[0].own
    assert event.writes["x"].tolist() == [2, 2]


@needs_jax
def test_after_a_call_that_hangs_the_ranks_are_new_ones(
    launcher: JaxLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hang is not asked of JAX. One that comes to pass is judged, and its processes are ended."""
    monkeypatch.setattr("torch_scenarios.execution.frameworks.launch.require_fit", lambda *_: None)
    assert judged(CALL.replace("OP", "sum"), tmp_path, launcher).status == "PASSED"
    before = set(launcher.processes())
    verdict = judged(ONE_TOO_MANY, tmp_path, launcher)
    assert verdict.observed is not None
    assert verdict.observed.outcome == "deadlock"
    assert judged(CALL.replace("OP", "sum"), tmp_path, launcher).status == "PASSED"
    assert before.isdisjoint(launcher.processes())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (CALL.replace("OP", "product").replace("[3, 3]", "[2, 2]"), "the reduce op `product`"),
        (CALL.partition("  - all")[0] + REDUCE, "`reduce` gives one rank what the others lack"),
        (ONE_TOO_MANY, "it needs `abort`"),
    ],
    ids=["product", "reduce", "hang"],
)
def test_what_jax_has_no_word_for_is_unsupported(tmp_path: Path, text: str, reason: str) -> None:
    """Nothing starts: the reason names the word."""
    with JaxLauncher() as launcher:
        verdict = judged(text, tmp_path, launcher)
        assert verdict.status == "UNSUPPORTED", verdict.findings
        assert reason in str(verdict.reason)
        assert launcher.processes() == ()


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "find_spec", lambda _name: None)
    with JaxLauncher() as launcher:
        verdict = judged(CALL.replace("OP", "sum"), tmp_path, launcher)
        assert verdict.status == "INCONCLUSIVE"
        words = "no rank can start on JAX: jax is not installed (`pip install jax` has it)"
        assert verdict.reason == words
        assert launcher.processes() == ()


def test_the_page_names_each_case_that_fails() -> None:
    columns = document.read(str(ROOT / "docs" / "conformance.json"))
    (column,) = (each for each in columns.values() if each.backend == "jax")
    page = (ROOT / "docs" / "explanation" / "jax.md").read_text(encoding="utf-8")
    failed = {
        case.partition(".yaml")[0]
        for case, seen in column.cases.items()
        if seen.verdict == "FAILED"
    }
    assert failed == set(re.findall(r"`([a-z0-9_/]+/[a-z_]+)`", page))
    counts = column.counts
    assert f"Of {sum(counts.values())} cases" in page
    assert f"passes {counts['PASSED']}, and {counts['UNSUPPORTED']} need" in page


@needs_jax
def test_no_process_outlives_a_run(tmp_path: Path) -> None:
    (tmp_path / "case.yaml").write_text(CALL.replace("OP", "sum"), encoding="utf-8")
    mark = f"SCENARIO_TEST_MARK={tmp_path}"
    process = subprocess.Popen(
        [sys.executable, "-m", "torch_scenarios.entry", "run", "--framework", "jax", "case.yaml"],
        cwd=tmp_path,
        env={**os.environ, "SCENARIO_TEST_MARK": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    try:
        assert processes.until(lambda: len(processes.of_run(mark)) >= 3, 60)
        process.kill()
        assert processes.until(lambda: processes.of_run(mark) == [], 20), processes.of_run(mark)
    finally:
        processes.ended(process)
