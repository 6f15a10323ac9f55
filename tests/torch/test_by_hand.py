"""`torchrun -m torch_scenarios.worker`: the results, reports and exit codes of `scenario run`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from processes import children, until
from sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable

    from warm_hosts import WarmHosts

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SUM = "world_size: 2\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}, expect: {x: [2]}}]\n"
HANG = """\
world_size: 2
timeout: 600s
tensors: {x: [1], y: [0]}
steps:
  - send: {tensor: x, dst: "1 - rank"}
  - recv: {tensor: y, src: "1 - rank"}
expect: {outcome: deadlock, diagnosis: circular_wait}
"""
#: what only a run can tell: no collective is that fast
WRONG = SUM.replace("{x: [2]}", "{elapsed: {max: 1us}}")
ENDS = """\
world_size: 2
timeout: 30s
tensors: {x: [1]}
steps:
  - barrier: {}
  - fault: kill
    ranks: 0
  - all_reduce: {tensor: x}
    ranks: 1
expect: {outcome: crash, dies: {0: SIGKILL}, raises: {1: peer_lost}}
"""
#: rank 0 sleeps, and rank 1 waits for it
LONG = """\
world_size: 2
timeout: 600s
tensors: {x: [1]}
steps:
  - barrier: {}
  - {sleep: 300s, ranks: 0}
  - all_reduce: {tensor: x}
"""
#: seconds that a launch may take to begin, and to end, with every core busy
START_S = 200.0
WIDE = SUM.replace("world_size: 2", "world_size: 3").replace("x: [2]", "x: [3]")

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
WORKER = [*TORCHRUN, "-m", "torch_scenarios.worker"]


def results(command: list[str], folder: Path) -> tuple[int, dict[str, Any]]:
    report = folder / "result.json"
    finished = subprocess.run(
        [*command, str(folder), "--json", str(report)],
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert report.exists(), finished.stderr.decode()
    told = json.loads(report.read_text(encoding="utf-8"))
    return finished.returncode, {result["case"]: result for result in told["results"]}


@pytest.mark.parametrize("with_failure", sampled([True, False], 2))
def test_torchrun_gives_what_scenario_run_gives(
    tmp_path: Path, forked_hosts: WarmHosts, *, with_failure: bool
) -> None:
    files = {"sum": SUM, "hang": HANG, "wide": WIDE} | ({"wrong": WRONG} if with_failure else {})
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    near_code, near = results(forked_hosts.command("scenario", "run"), tmp_path)
    far_code, far = results([sys.executable, *WORKER], tmp_path)
    assert near_code == far_code == int(with_failure)
    assert near.keys() == far.keys() == files.keys()
    assert near.pop("wide")["verdict"] == "PASSED"
    assert far.pop("wide")["verdict"] == "UNSUPPORTED"  # the launch is of two processes
    for case in near:
        assert near[case]["verdict"] == far[case]["verdict"]
        assert near[case]["observed"]["outcome"] == far[case]["observed"]["outcome"]
        assert near[case]["observed"].get("blocked") == far[case]["observed"].get("blocked")


@pytest.mark.nightly
def test_a_scenario_that_ends_rank_0_takes_no_report_with_it(tmp_path: Path) -> None:
    for name, text in {"a_sum": SUM, "b_ends": ENDS, "c_sum": SUM}.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    code, far = results([sys.executable, *WORKER], tmp_path)
    verdicts = {case: result["verdict"] for case, result in far.items()}
    assert verdicts == {"a_sum": "PASSED", "b_ends": "PASSED", "c_sum": "INCONCLUSIVE"}
    assert "this launch ended with b_ends" in far["c_sum"]["reason"]
    assert code == 1  # torchrun makes that of each code


@pytest.mark.nightly
@pytest.mark.parametrize("victim", sampled(["command line", "agent", "rank 0", "rank 1"], 4))
def test_a_launch_that_is_told_to_end_reports_what_it_has(tmp_path: Path, victim: str) -> None:
    for name, text in {"a_sum": SUM, "b_long": LONG, "c_sum": SUM}.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    report, output = tmp_path / "result.json", tmp_path / "output"
    with output.open("wb") as file:
        agent = subprocess.Popen(
            [sys.executable, *WORKER, str(tmp_path), "-v", "--json", str(report)],
            stdout=file,
            stderr=file,
        )
    try:
        assert until(lambda: b"a_sum" in output.read_bytes(), START_S), output.read_text()
        pids = {"agent": agent.pid, **ranks_of(agent.pid)}
        os.kill(pids[victim], signal.SIGTERM)
        assert agent.wait(START_S) != 0
    finally:
        agent.kill()
        agent.wait()
    told = json.loads(report.read_text(encoding="utf-8"))["results"]
    verdicts = {result["case"]: result["verdict"] for result in told}
    assert verdicts == {"a_sum": "PASSED", "b_long": "INCONCLUSIVE", "c_sum": "INCONCLUSIVE"}
    for result in told[1:]:
        assert "its process received SIGTERM" in result["reason"]


def ranks_of(agent: int) -> dict[str, int]:
    """Return the processes of a launch: the command line has the worker of rank 0 as its child."""
    found: dict[str, int] = {}
    for child in children(agent):
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        found["command line" if b"RANK=0" in variables else "rank 1"] = child
    found["rank 0"] = children(found["command line"])[0]
    return found


def placed_by_torchrun(rank: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def placed_by_slurm(rank: int, port: int) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": str(port),
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_NTASKS": "2",
        "SLURM_LOCALID": str(rank),
        "SLURM_JOB_NODELIST": "localhost,[a-b]",
    }


def placed_by_open_mpi(rank: int, port: int) -> dict[str, str]:
    return {
        "PMIX_NAMESPACE": str(port),
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    }


@pytest.mark.nightly
@pytest.mark.parametrize(
    "placed", sampled([placed_by_slurm, placed_by_torchrun, placed_by_open_mpi], 3)
)
def test_ranks_that_a_cluster_started_need_no_torchrun(
    tmp_path: Path, placed: Callable[[int, int], dict[str, str]]
) -> None:
    """The last rank is started first: it waits for rank 0's store, and says nothing."""
    (tmp_path / "sum.yaml").write_text(SUM, encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "torch_scenarios.worker", str(tmp_path)],
            env={**os.environ, **placed(rank, port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in (1, 0)
    ]
    told = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], told
    assert "1 passed" in told[1]
    assert told[0] == ""


def test_without_a_launch_the_worker_says_how_to_start_one() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "torch_scenarios.worker", "scenarios"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 1
    assert "torchrun --nproc-per-node 4 -m torch_scenarios.worker" in finished.stderr
