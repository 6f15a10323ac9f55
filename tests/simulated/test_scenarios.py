"""The product on torch's own CUDA and NCCL code, where a build of torch for CUDA is installed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.simulated.build import HERE, NotHereError, installed
from tests.simulated.surroundings import surroundings

if TYPE_CHECKING:
    from pathlib import Path

    RunEnd = dict[str, Any]

pytestmark = pytest.mark.torch

SUM = """\
world_size: 2
tensors: {x: [1, 2]}
steps:
  - all_reduce: {tensor: x}
    expect: {x: [2, 4]}
"""
HANG = """\
world_size: 2
tensors: {x: [1]}
steps:
  - ranks: 0
    all_reduce: {tensor: x}
expect: {outcome: deadlock, diagnosis: missing_participant, blocked: {0: all_reduce}}
"""
MESH = """\
world_size: 4
groups: {mesh: {shape: [2, 2], dims: [dp, tp]}}
tensors: {x: "full(1, rank)"}
steps:
  - all_reduce: {tensor: x, group: mesh.tp}
    expect: {x: {0: [1], 1: [1], else: [5]}}
"""
REFUSED = """\
world_size: 2
tensors: {x: {value: [1], dtype: int16}}
steps:
  - {ranks: 0, send: {tensor: x, dst: 1}}
  - {ranks: 1, recv: {tensor: x, src: 0}}
"""
#: each rank sends to the next one, whose batch is refused before it names a receive
SECOND_IS_REFUSED = """\
world_size: 3
tensors:
  x: [1, 2]
  y: [0, 0]
  small: {value: [1], dtype: int16}
  other: {value: [1], dtype: int16}
steps:
  - batch_isend_irecv:
      p2p_op_list:
        - {op: isend, tensor: x, peer: (rank + 1) % 3}
        - {op: isend, tensor: small, peer: (rank + 1) % 3}
        - {op: irecv, tensor: y, peer: (rank + 2) % 3}
        - {op: irecv, tensor: other, peer: (rank + 2) % 3}
    as: both
  - wait: both
"""
NOBODY_MAKES_THE_GROUP = """\
world_size: 3
timeout: 2s
tensors: {x: [1]}
steps:
  - {ranks: [0, 2], new_group: {name: g, group_ranks: [0, 1]}}
expect: {outcome: deadlock, blocked: {0: new_group g}, diagnosis: missing_participant}
"""
TRAINED = """\
world_size: 2
matrix: {strategy: [ddp, fsdp]}
groups: {mesh: {shape: [2], dims: [dp]}}
tensors: {x: "random([4, 2], 1)", y: "random([4, 3], 2)"}
models:
  net:
    layers:
      - fc: {Linear: {in_features: 2, out_features: 3}}
    loss: mse_loss
    optimizer: {AdamW: {lr: 0.1}}
    parallel: strategy
strategies:
  ddp: [DistributedDataParallel: {}]
  fsdp: [fully_shard: {mesh: mesh.dp}]
steps:
  - train: {model: net, input: x, target: y, batch: mesh.dp}
"""
WITHOUT_KERNEL = """\
world_size: 2
groups: {mesh: {shape: [2], dims: [dp]}}
tensors: {x: "random([4, 2], 1)", y: "random([4, 2], 2)"}
models:
  net:
    layers:
      - norm: {RMSNorm: {normalized_shape: 2}}
    loss: mse_loss
    optimizer: {SGD: {lr: 0.1}}
    parallel: [DistributedDataParallel: {}]
steps:
  - train: {model: net, input: x, target: y, batch: mesh.dp}
"""


KILLED = """\
world_size: 2
tensors: {x: [1]}
steps:
  - {ranks: 1, fault: kill}
  - all_reduce: {tensor: x}
    expect: {raises: peer_lost}
expect: {outcome: crash, dies: {1: SIGKILL}}
"""


@pytest.fixture(scope="module")
def around() -> dict[str, str]:
    """Return the environment of eight simulated GPUs."""
    try:
        installed()
        return surroundings(os.environ, gpus=8)
    except NotHereError as error:
        pytest.skip(f"no simulated GPUs: {error}")


def run(around: dict[str, str], folder: Path, *words: str, **files: str) -> list[RunEnd]:
    """Run scenarios in the order of their names, in one launch; returns their results."""
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    out = folder / "result.json"
    command = "from torch_scenarios.cli import main; main()"
    options = ["--backend", "nccl", "--no-cache", "--json", str(out), *words]
    done = subprocess.run(
        [sys.executable, "-c", command, "run", *options, str(folder)],
        env={**around, "PYTHONPATH": f"{around['PYTHONPATH']}:{HERE.parents[1]}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert out.exists(), done.stdout + done.stderr
    results: list[RunEnd] = json.loads(out.read_text())["results"]
    return results


def verdicts(results: list[RunEnd]) -> list[str]:
    """Return what was judged, in order."""
    return [result["verdict"] for result in results]


def test_torchs_nccl_reduces_over_the_ranks(around: dict[str, str], tmp_path: Path) -> None:
    (result,) = run(around, tmp_path, a=SUM)
    assert result["verdict"] == "PASSED"
    assert result["observed"]["outcome"] == "completes"


def test_a_hang_is_told_by_the_flight_recorder_and_the_launch_goes_on(
    around: dict[str, str], tmp_path: Path
) -> None:
    results = run(around, tmp_path, a=HANG, b=SUM)
    assert verdicts(results) == ["PASSED", "PASSED"]
    assert results[0]["observed"]["blocked"] == {"0": "all_reduce"}
    assert "flight recorder of rank 0: all_reduce #1" in json.dumps(results[0])


def test_a_mesh_can_be_made_in_every_world_of_a_process(
    around: dict[str, str], tmp_path: Path
) -> None:
    results = run(around, tmp_path, a=SUM, b=MESH)
    assert verdicts(results) == ["PASSED", "PASSED"]


def test_a_refused_message_leaves_no_group_open(around: dict[str, str], tmp_path: Path) -> None:
    results = run(around, tmp_path, a=REFUSED, b=SUM)
    assert verdicts(results) == ["UNSUPPORTED", "PASSED"]


def test_a_batch_whose_second_message_is_refused_sends_nothing(
    around: dict[str, str], tmp_path: Path
) -> None:
    results = run(around, tmp_path, a=SECOND_IS_REFUSED, b=SUM)
    assert verdicts(results) == ["UNSUPPORTED", "PASSED"]


@pytest.mark.parametrize("version", ["2.28.9", "2.30.3"])
def test_ranks_share_a_gpu_in_the_way_of_their_nccl(
    around: dict[str, str], tmp_path: Path, version: str
) -> None:
    own = {**around, "SIMULATED_GPUS": "1", "SIMULATED_NCCL_VERSION": version}
    assert verdicts(run(own, tmp_path, "--share-gpu", a=SUM)) == ["PASSED"]


def test_a_rank_that_stands_without_letting_go_of_python_is_no_riddle(
    around: dict[str, str], tmp_path: Path
) -> None:
    results = run(around, tmp_path, a=NOBODY_MAKES_THE_GROUP, b=SUM)
    assert results[0]["observed"]["outcome"] == "deadlock"
    assert "rank 2 is in a call of the backend's" in json.dumps(results[0])
    assert results[1]["verdict"] == "PASSED"


def test_a_program_that_waits_for_a_dead_peer_needs_what_nccl_lacks(
    around: dict[str, str], tmp_path: Path
) -> None:
    results = run(around, tmp_path, a=KILLED, b=SUM)
    assert verdicts(results) == ["UNSUPPORTED", "PASSED"]
    assert "`timeouts`" in results[0]["reason"]


def test_models_train_on_the_devices_of_their_ranks(around: dict[str, str], tmp_path: Path) -> None:
    assert verdicts(run(around, tmp_path, a=TRAINED)) == ["PASSED", "PASSED"]


def test_a_kernel_that_is_not_there_is_no_failure_of_the_program(
    around: dict[str, str], tmp_path: Path
) -> None:
    results = run(around, tmp_path, a=WITHOUT_KERNEL, b=SUM)
    assert verdicts(results) == ["UNSUPPORTED", "PASSED"]
    assert "the simulated runtime has no kernel" in results[0]["reason"]


LEFT_ALONE = """\
world_size: 2
tensors: {x: [1]}
steps:
  - {ranks: 0, all_reduce: {tensor: x, async_op: true}, as: sum}
  - {ranks: 0, wait: sum}
expect: {outcome: deadlock, diagnosis: missing_participant, blocked: {0: wait sum}}
"""


@pytest.mark.parametrize(("switch", "stands"), [("0", "wait sum"), ("1", "all_reduce")])
def test_a_ring_that_is_connected_at_run_time_blocks_the_host_in_its_call(
    around: dict[str, str], tmp_path: Path, switch: str, stands: str
) -> None:
    (result,) = run({**around, "NCCL_RUNTIME_CONNECT": switch}, tmp_path, a=LEFT_ALONE)
    assert result["observed"]["blocked"] == {"0": stands}


@pytest.mark.parametrize(
    "switch",
    ["TORCH_NCCL_USE_COMM_NONBLOCKING=1", "CUDA_MODULE_LOADING=LAZY", "TORCH_NCCL_BLOCKING_WAIT=1"],
)
def test_other_ways_of_nccl_and_cuda_come_to_the_same(
    around: dict[str, str], tmp_path: Path, switch: str
) -> None:
    name, _, value = switch.partition("=")
    results = run({**around, name: value}, tmp_path, a=LEFT_ALONE, b=SUM, c=MESH)
    assert verdicts(results) == ["PASSED"] * 3


def test_a_task_of_slurm_with_a_gpu_of_its_own_takes_that(
    around: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text(SUM)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "torch_scenarios.worker", "--backend", "nccl", "a.yaml"],
            cwd=tmp_path,
            env={
                **around,
                **dict.fromkeys(("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), "2"),
                **dict.fromkeys(("SLURM_STEP_NUM_NODES", "SLURM_NNODES"), "1"),
                **dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID"), str(rank)),
                "SLURM_GPUS_PER_TASK": "1",
                "SLURM_TASKS_PER_NODE": "2",
                "SLURM_JOB_ID": str(os.getpid()),
                "SLURM_STEP_ID": "0",
                "CUDA_VISIBLE_DEVICES": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert "1 passed" in outputs[0]
