"""Scenarios on MPI itself: what is judged, what is refused, and that nothing outlives a run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import processes
import pytest
from checkout import ROOT
from click.testing import CliRunner

import torch_scenarios
from torch_scenarios.cli import cli
from torch_scenarios.conformance import document
from torch_scenarios.errors import StartError
from torch_scenarios.execution import heartbeat
from torch_scenarios.execution.frameworks import mpi
from torch_scenarios.execution.frameworks.mpi import MpiLauncher
from torch_scenarios.pipeline.attempts import analyse, execute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch_scenarios.verdict import Verdict

needs_mpi = pytest.mark.skipif(
    find_spec("mpi4py") is None, reason="mpi4py is not installed: the extra `mpi` has it"
)

#: where MPI's processes share memory, by names that could stay
SHARED = Path("/dev/shm")  # noqa: S108 -- it is only looked at

RIGHT = """\
world_size: 2
tensors:
  x: "full(3, rank + 1)"
steps:
  - all_reduce: {tensor: x, op: OP}
    expect:
      x: [3, 3, 3]
"""
CIRCLE = """\
world_size: 2
tensors:
  x: zeros(3)
steps:
  - recv: {tensor: x, src: 1 - rank}
  - send: {tensor: x, dst: 1 - rank}
expect: {outcome: deadlock, diagnosis: circular_wait}
"""
#: two ranks that both send first; the message is larger than MPI buffers, or not
CROSSING = """\
world_size: 2
tensors:
  x: "full(SIZE, rank)"
  y: "zeros(SIZE)"
steps:
  - send: {tensor: x, dst: 1 - rank}
  - recv: {tensor: y, src: 1 - rank}
expect: {outcome: OUTCOME, diagnosis: buffering_hazard}
"""


@pytest.fixture(scope="module")
def launcher() -> Iterator[MpiLauncher]:
    with MpiLauncher() as entered:
        entered.reserve(4)
        yield entered


def judged(text: str, folder: Path, launcher: MpiLauncher) -> Verdict:
    path = folder / "judged.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    return execute(analyse(scenario), launcher).verdict


@needs_mpi
@pytest.mark.parametrize(
    "name",
    [
        "p2p/send_recv",
        "p2p/from_anyone",
        "collectives/all_reduce_sum",
        "collectives/all_gather",
        "collectives/reduce_scatter",
        "collectives/all_to_all_single",
        "rooted/gather",
        "rooted/scatter",
        "barrier/nobody_passes_early",
    ],
)
def test_what_mpi_and_torch_share_passes(launcher: MpiLauncher, name: str) -> None:
    for scenario in torch_scenarios.load(ROOT / "scenarios" / f"{name}.yaml"):
        verdict = execute(analyse(scenario), launcher).verdict
        assert verdict.status == "PASSED", (verdict.reason, verdict.findings)
        assert verdict.observed is not None
        assert verdict.observed.backend == "mpi"


@needs_mpi
def test_a_deadlock_is_confirmed_at_once_and_the_ranks_live_on(
    launcher: MpiLauncher, tmp_path: Path
) -> None:
    judged(RIGHT.replace("OP", "sum"), tmp_path, launcher)
    before, began = launcher.processes(), time.monotonic()
    verdict = judged(CIRCLE, tmp_path, launcher)
    assert verdict.status == "PASSED", verdict.findings
    assert verdict.observed is not None
    assert verdict.observed.outcome == "deadlock"
    assert time.monotonic() - began < 10  # the timeout of the group is a minute
    assert judged(RIGHT.replace("OP", "sum"), tmp_path, launcher).status == "PASSED"
    assert launcher.processes() == before


@needs_mpi
def test_a_stopped_rank_is_lost(
    launcher: MpiLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judged(RIGHT.replace("OP", "sum"), tmp_path, launcher).status == "PASSED"
    stopped = launcher.processes()[-1]
    os.kill(stopped, signal.SIGSTOP)
    monkeypatch.setattr(heartbeat, "STOPPED_S", 1.0)
    text = RIGHT.replace("OP", "sum").replace("2", "4").replace("[3, 3, 3]", "[10, 10, 10]")
    verdict = judged(text, tmp_path, launcher)
    assert verdict.status == "INCONCLUSIVE"
    assert f"process {stopped} is stopped (SIGSTOP or the like)" in str(verdict.reason)


@needs_mpi
@pytest.mark.parametrize(("size", "outcome"), [(4, "completes"), (1_000_000, "deadlock")])
def test_two_ranks_that_send_first_pass_where_mpi_buffers(
    launcher: MpiLauncher, tmp_path: Path, size: int, outcome: str
) -> None:
    text = CROSSING.replace("SIZE", str(size)).replace("OUTCOME", outcome)
    verdict = judged(text, tmp_path, launcher)
    assert verdict.observed is not None
    assert verdict.observed.outcome == outcome


@needs_mpi
def test_a_message_larger_than_its_buffer_is_an_error_of_mpi(
    launcher: MpiLauncher, tmp_path: Path
) -> None:
    text = CIRCLE.replace("zeros(3)", "zeros(3 + rank)").replace(
        "  - recv", "  - ranks: 0\n    recv"
    )
    text = text.replace("  - send", "  - ranks: 1\n    send").partition("expect:")[0]
    text += "expect: {outcome: error, diagnosis: shape_mismatch, raises: {0: shape_mismatch}}\n"
    verdict = judged(text, tmp_path, launcher)
    assert verdict.observed is not None
    failure = verdict.observed.ranks[0].events[-1].failure
    assert failure is not None
    assert failure.kinds == ("shape_mismatch",)
    assert "MPI_ERR_TRUNCATE" in failure.message


@needs_mpi
def test_the_ranks_have_no_torch(launcher: MpiLauncher, tmp_path: Path) -> None:
    assert judged(RIGHT.replace("OP", "sum"), tmp_path, launcher).status == "PASSED"
    for pid in launcher.processes():
        assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")


def test_what_mpi_has_no_word_for_is_unsupported(tmp_path: Path) -> None:
    """Nothing starts: the reason names the word."""
    with MpiLauncher() as launcher:
        verdict = judged(RIGHT.replace("OP", "avg").replace("3, 3", "1.5, 1.5"), tmp_path, launcher)
        assert verdict.status == "FAILED"  # the author's own mistake comes first
        text = RIGHT.replace("OP", "avg").replace("[3, 3, 3]", "full(3, 1.5)")
        verdict = judged(text, tmp_path, launcher)
        assert verdict.status == "UNSUPPORTED"
        assert verdict.reason == "it needs `avg` (the reduce op `avg`), which mpi lacks"
        assert launcher.processes() == ()


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi, "find_spec", lambda _name: None)
    with pytest.raises(StartError, match=r"mpi4py is not installed .*pip install mpi4py mpich"):
        mpi.find_mpiexec()


@needs_mpi
def test_parts_beyond_the_end_of_a_tensor_are_refused(
    launcher: MpiLauncher, tmp_path: Path
) -> None:
    """MPI reads as much as the counts say, no matter what lies there."""
    text = """\
world_size: 2
tensors:
  x: zeros(4)
  y: zeros(4)
steps:
  - all_to_all_single:
      {output: y, input: x, input_split_sizes: [90, 90], output_split_sizes: [90, 90]}
    expect: {raises: [invalid_argument, shape_mismatch]}
expect: {diagnosis: invalid_argument}
"""
    verdict = judged(text, tmp_path, launcher)
    assert verdict.status == "PASSED", verdict.findings
    assert judged(RIGHT.replace("OP", "sum"), tmp_path, launcher).status == "PASSED"


def test_the_page_names_each_case_that_fails() -> None:
    columns = document.read(str(ROOT / "docs" / "conformance.json"))
    (column,) = (each for each in columns.values() if each.backend == "mpi")
    page = (ROOT / "docs" / "explanation" / "mpi.md").read_text(encoding="utf-8")
    failed = {
        case.partition(".yaml")[0]
        for case, seen in column.cases.items()
        if seen.verdict == "FAILED"
    }
    assert failed == set(re.findall(r"`([a-z0-9_/]+/[a-z_]+)`", page))
    counts = column.counts
    told = f"Of {sum(counts.values())} cases"
    assert told in page
    assert f"passes {counts['PASSED']}, and {counts['UNSUPPORTED']} need" in page


def test_no_range_of_torch_follows_from_a_run_without_torch() -> None:
    columns = document.read(str(ROOT / "docs" / "conformance.json"))
    assert document.propose(columns, "mpi") == []


def test_options_of_torch_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "sum.yaml"
    path.write_text(RIGHT.replace("OP", "sum"), encoding="utf-8")
    done = CliRunner().invoke(
        cli, ["run", "--framework", "mpi", "--backend", "gloo", str(path)], catch_exceptions=False
    )
    assert done.exit_code == 2
    assert "--backend is for runs on torch" in done.output


def _start(folder: Path, text: str) -> tuple[subprocess.Popen[str], str]:
    """Start a command in a folder; return it with the mark of its processes."""
    (folder / "case.yaml").write_text(text, encoding="utf-8")
    mark = f"SCENARIO_TEST_MARK={folder}"
    process = subprocess.Popen(
        [sys.executable, "-m", "torch_scenarios.entry", "run", "--framework", "mpi", "case.yaml"],
        cwd=folder,
        env={**os.environ, "SCENARIO_TEST_MARK": str(folder), "TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return process, mark


def _shared_memory() -> set[str]:
    return {each.name for each in SHARED.iterdir() if re.match("mpich|openmpi", each.name)}


def _hold_unnamed_memory(mark: str) -> bool:
    """Whether both ranks have taken the name of MPI's shared memory away, as they do at first."""
    held = 0
    for pid in processes.of_run(mark):
        with suppress(OSError):  # it has ended meanwhile
            maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
            held += re.search(r"/(?:mpich|openmpi)\S* \(deleted\)", maps) is not None
    return held >= 2


@needs_mpi
@pytest.mark.parametrize(
    "how", [None, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly), signal.SIGKILL]
)
def test_no_process_and_no_file_outlives_a_run(tmp_path: Path, how: signal.Signals | None) -> None:
    (tmp_path / "tmp").mkdir()
    before = _shared_memory()
    # the second rank waits for a minute, so that there is time to end the command
    waits = RIGHT.replace("OP", "sum").replace("steps:\n", "steps:\n  - sleep: 60s\n")
    process, mark = _start(tmp_path, RIGHT.replace("OP", "sum") if how is None else waits)
    try:
        if how is not None:
            assert processes.until(lambda: _hold_unnamed_memory(mark), 60)
            process.send_signal(how)
        process.wait(60)
        assert how is not None or process.returncode == 0
        assert processes.until(lambda: processes.of_run(mark) == [], 20), processes.of_run(mark)
        assert processes.until(lambda: list((tmp_path / "tmp").iterdir()) == [], 5)
        assert processes.until(lambda: _shared_memory() <= before, 10)  # others begin meanwhile
    finally:
        processes.ended(process)
