"""Remote procedure calls in a record: where ranks wait in them is told, the rest is not judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from torch_scenarios.cli import cli
from torch_scenarios.record import live

if TYPE_CHECKING:
    from pathlib import Path

    from recordings import Recording

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = """\
import os
import torch
import torch.distributed.rpc as rpc


def add(a, b):
    return a + b


if __name__ == "__main__":
    rank = int(os.environ["RANK"])
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    if rank == 1:
        rpc.rpc_sync("worker0", add, args=(torch.ones(1), 1))
        rpc.rpc_async("worker0", add, args=(torch.ones(1), 1)).wait()
        rpc.remote("worker0", add, args=(torch.ones(1), 1)).to_here()
        LEAVE
    rpc.shutdown()
"""


def record(recording: Recording, folder: Path, leave: str, *how: str) -> tuple[int, str]:
    script = folder / "train.py"
    script.write_text(SCRIPT.replace("LEAVE", leave), encoding="utf-8")
    ran = recording.record(script, "-n", "2", "--max-seconds", "120", *how)
    assert "`torch.distributed.rpc` is used" in ran.output, ran.output
    return ran.code, ran.output


NESTED = """\
import os
import torch
import torch.distributed.rpc as rpc


def shift(x):
    return x + 1


def scale(x):
    return rpc.rpc_sync("worker1", shift, args=(x,), timeout=600) * 2


def evaluate(x):
    return rpc.rpc_sync("worker0", scale, args=(x,), timeout=600)


if __name__ == "__main__":
    rank = int(os.environ["RANK"])
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=1, rpc_timeout=600)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 0:
        rpc.rpc_sync("worker1", evaluate, args=(torch.ones(2),), timeout=600)
    rpc.shutdown()
"""


@pytest.mark.nightly
def test_a_call_that_waits_has_its_function_and_its_worker(
    recording: Recording, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(NESTED, encoding="utf-8")
    ran = recording.record(script, "-n", "2", "--max-seconds", "15")
    assert ran.code == 3, ran.output
    assert "rank 0: in rpc.rpc_sync of `shift` on worker1 (train.py:11)" in ran.output
    assert "rank 1: in rpc.rpc_sync of `scale` on worker0 (train.py:15)" in ran.output


def test_a_rank_that_waits_in_shutdown_for_one_that_has_left_is_named(
    recording: Recording, tmp_path: Path
) -> None:
    code, output = record(recording, tmp_path, "os._exit(0)")
    assert code == 1, output
    assert "rank 0 waits in `rpc.shutdown` (train.py:18) for rank 1" in output
    assert "rank 1 has left (train.py:17)" in output


@pytest.mark.nightly
def test_an_error_of_a_rank_is_the_cause_and_not_that_the_others_wait(
    recording: Recording, tmp_path: Path
) -> None:
    code, output = record(recording, tmp_path, "raise ValueError('no data')")
    assert code == 1, output
    assert "ValueError: no data (train.py:17)" in output
    assert "has left without it" not in output


@pytest.mark.parametrize(
    "how", [pytest.param((), marks=pytest.mark.nightly), ("--fake",)], ids=["live", "fake"]
)
def test_a_script_with_nothing_else_is_not_judged(
    recording: Recording, tmp_path: Path, how: tuple[str, ...]
) -> None:
    code, output = record(recording, tmp_path, "pass", *how)
    assert code == 3, output
    assert "remote procedure calls are not judged" in output


WORKERS = """\
import os
import torch.distributed.rpc as rpc

WORKERS = 2
size = WORKERS + 1
rank = int(os.environ["RANK"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size)
rpc.shutdown()
"""


@pytest.mark.parametrize(
    "how", [pytest.param((), marks=pytest.mark.nightly), ("--fake",)], ids=["live", "fake"]
)
def test_a_world_of_more_workers_than_ranks_is_told(
    recording: Recording, tmp_path: Path, how: tuple[str, ...]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(WORKERS, encoding="utf-8")
    ran = recording.record(script, "-n", "2", "--max-seconds", "120", *how)
    assert ran.code == 1, ran.output
    words = "`rpc.init_rpc` (train.py:7) waits for 3 workers, and 2 ranks are started"
    assert words in ran.output
    again = CliRunner().invoke(cli, ["import", str(ran.folder)])
    assert again.exit_code == 1, again.output
    assert words in again.output
    assert "this comes from `size = WORKERS + 1` (train.py:5)" in ran.output


WAITS = """\
import os
import threading
import torch.distributed.rpc as rpc

ready = threading.Event()


def fetch():
    ready.wait()


if __name__ == "__main__":
    rank = int(os.environ["RANK"])
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    if rank == 1:
        rpc.rpc_sync("worker0", fetch, timeout=0)
    rpc.shutdown()
"""


@pytest.mark.nightly
def test_a_function_that_waits_on_its_worker_is_told_and_the_run_is_ended(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "ENDLESS_S", 2.0)
    script = tmp_path / "train.py"
    script.write_text(WAITS, encoding="utf-8")
    ran = recording.record(script, "-n", "2", "--max-seconds", "120")
    assert ran.code == 3, ran.output
    assert (
        "rank 1 waits in `rpc.rpc_sync` (train.py:16) for `fetch` on worker0 (rank 0), where it is "
        "at train.py:9: it waits for another thread of its own to wake it"
    ) in ran.output
    assert "--max-seconds" not in ran.output
