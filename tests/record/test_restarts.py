"""What becomes of ranks that are started again: torchrun's, and fake ones as by torchrun."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from torch_scenarios.cli import cli

if TYPE_CHECKING:
    from recordings import Recording

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = """\
import os
import pathlib
import torch
import torch.distributed as dist


def train(path):
    start = int(path.read_text()) if path.exists() else 0
    for epoch in range(start, 3):
        dist.all_reduce(torch.ones(1))
        if dist.get_rank() == 0:
            path.write_text(str(epoch + 1))
        if dist.get_rank() == 1 and COUNT == 0:
            raise RuntimeError("preempted")


COUNT = int(os.environ.get("ASKED", "0"))
dist.init_process_group("gloo")
train(pathlib.Path(__file__).with_name(f"NAME"))
dist.barrier()
dist.destroy_process_group()
"""


def write(folder: Path, name: str, asked: str) -> Path:
    script = folder / "train.py"
    text = SCRIPT.replace("NAME", name).replace("ASKED", asked)
    script.write_text(text, encoding="utf-8")
    return script


@pytest.mark.parametrize(("name", "code"), [("done", 0), ("done{dist.get_rank()}", 1)])
def test_a_script_that_asks_for_its_restarts_is_judged_by_the_second_start(
    recording: Recording, tmp_path: Path, name: str, code: int
) -> None:
    script = write(tmp_path, name, "TORCHELASTIC_RESTART_COUNT")
    ran = recording.record(script, "-n", "2", "--fake")
    assert ran.code == code, ran.output + ran.errors
    assert "all ranks were started once more, as by `torchrun --max-restarts 1`" in ran.output
    assert "preempted" not in ran.output
    assert ("`for epoch in range(start, 3)` (train.py:9)" in ran.output) is (code == 1)


def test_fake_ranks_write_no_more_before_a_restart_than_real_ones(
    recording: Recording, tmp_path: Path
) -> None:
    script = write(tmp_path, "done{dist.get_rank()}", "TORCHELASTIC_RESTART_COUNT")
    text = script.read_text(encoding="utf-8").replace("if dist.get_rank() == 0:", "if True:")
    script.write_text(text, encoding="utf-8")
    ran = recording.record(script, "-n", "2", "--fake")
    assert ran.code == 0, ran.output + ran.errors
    assert "all ranks were started once more, as by `torchrun --max-restarts 1`" in ran.output


def test_the_error_of_any_other_script_is_the_verdict(recording: Recording, tmp_path: Path) -> None:
    ran = recording.record(write(tmp_path, "done", "RETRIES"), "-n", "2", "--fake")
    assert ran.code == 1
    assert "rank 1 raises RuntimeError: preempted (train.py:14" in ran.output
    assert "once more" not in ran.output


#: each start has its own store: in one that is kept, half of the restarts fail
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"


def test_why_torchrun_has_started_the_ranks_again_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OWN_STORE, "1")
    script = write(tmp_path, "done", "TORCHELASTIC_RESTART_COUNT")
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    launcher = [torchrun, "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    out = tmp_path / "record"
    done = CliRunner().invoke(cli, ["record", "-o", str(out), "--", *launcher, str(script)])
    assert done.exit_code == 0, done.output
    words = "rank 1 raised RuntimeError: preempted (train.py:14"
    assert words in done.output
    assert "and all ranks were started again" in done.output
    assert {each.name.split("-")[0] for each in out.glob("*rank-*.jsonl")} == {"earlier", "rank"}
