"""Ranks that record themselves under a launcher of the user's own, and samples of large worlds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from recordings import SCRIPTS

from runner.cli import cli
from runner.record.live import attaching

if TYPE_CHECKING:
    from recordings import Recording

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def test_ranks_record_themselves_under_torchrun_and_say_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"),
            str(SCRIPTS / "handles.py"),
        ],
        env={**os.environ, **attaching(folder, os.environ.get("PYTHONPATH", ""))},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    said = CliRunner().invoke(cli, ["import", str(folder)])
    assert said.exit_code == 0, said.output
    assert said.output.startswith("PASSED")


def test_a_sample_of_a_large_world_is_told_as_one(recording: Recording) -> None:
    ran = recording.of("tensor_parallel.py", "--fake", "-n", "1024", "--ranks", "0,8", TP="8")
    assert ran.code == 3, ran.output + ran.errors
    assert "2 of 1024 ranks are recorded" in ran.result["reason"]
