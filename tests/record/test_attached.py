"""Ranks that record themselves under a launcher of the user's own, and samples of large worlds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from recordings import SCRIPTS
from sampling import sampled

from torch_scenarios.cli import cli
from torch_scenarios.record.evidence.claim import make_environment
from torch_scenarios.record.format import read_launch

if TYPE_CHECKING:
    from recordings import Recording

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def under_torchrun(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run two ranks of a script under torchrun, where they record themselves."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"),
            str(SCRIPTS / script),
        ],
        env={
            **os.environ,
            **make_environment(folder, os.environ.get("PYTHONPATH", "")),
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.nightly
def test_ranks_record_themselves_under_torchrun_and_say_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    done = under_torchrun("handles.py", folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    said = CliRunner().invoke(cli, ["import", str(folder)])
    assert said.exit_code == 0, said.output
    assert said.output.startswith("PASSED")


@pytest.mark.parametrize(
    ("how", "words"),
    sampled(
        [
            ("leave", "rank 1 exits with code 7 after all_reduce (ends.py:12)"),
            ("kill", "rank 1 dies by SIGKILL after all_reduce (ends.py:12)"),
        ],
        2,
    ),
)
def test_what_torchrun_saw_of_a_rank_that_ended_is_told(
    tmp_path: Path, how: str, words: str
) -> None:
    folder = tmp_path / "record"
    assert under_torchrun("ends.py", folder, HOW=how).returncode == 1
    seen = read_launch(folder)
    assert seen.launcher == "torchrun"
    assert seen.exits[1] == {"leave": 7, "kill": -9}[how]
    assert 1 not in seen.stopped
    said = CliRunner().invoke(cli, ["import", str(folder)])
    assert said.exit_code == 1, said.output
    assert words in said.output
    assert "rank 0 dies" not in said.output  # torchrun ended it, or what it waited for raised


PARTED = '''\
"""What Python gives a script."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

print(__spec__, __package__, __name__, __doc__, sys.argv[1:], sys.path[0], flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    patience = 2 if dist.get_rank() == 1 else 3
    for turn in range(4):
        if turn >= patience:
            break
        dist.all_reduce(torch.ones(1))
    dist.barrier()


main()
'''


@pytest.mark.nightly
def test_a_script_under_torchrun_notes_which_way_it_goes_and_is_run_as_ever(
    tmp_path: Path,
) -> None:
    script = tmp_path / "parted.py"
    script.write_text(PARTED, encoding="utf-8")
    said = subprocess.run(
        [
            *(sys.executable, "-m", "torch_scenarios.cli", "record", "--"),
            *(sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"),
            *(str(script), "a"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert said.returncode == 1, said.stdout + said.stderr
    given = f"None None __main__ What Python gives a script. ['a'] {tmp_path}\n"
    assert said.stdout.count(given) == 2, said.stdout
    assert "rank 1 alone takes the `break`:18 under `if turn >= patience`" in said.stdout
    assert "patience = 2 on rank 1" in said.stdout


@pytest.mark.nightly
def test_a_launcher_of_the_users_own_is_named_and_ended_with_its_ranks(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    said = subprocess.run(
        [
            *(sys.executable, "-m", "torch_scenarios.cli", "record", "-o", str(folder), "--"),
            *(*command, str(SCRIPTS / "rank0_evaluates.py")),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert said.returncode == 1, said.stdout + said.stderr
    assert re.search(r"FAILED +.*rank0_evaluates\.py  2 ranks under torchrun, stuck", said.stdout)
    assert "rank 0: in all_reduce (rank0_evaluates.py:8" in said.stdout
    seen = read_launch(folder)
    assert seen.exits == {}  # what ended, we ended
    assert not any(Path(f"/proc/{pid}").exists() for pid in seen.pids.values())
    again = CliRunner().invoke(cli, ["import", str(folder)])
    assert again.exit_code == 1
    assert "dies by" not in again.output


@pytest.mark.nightly
def test_a_sample_of_a_large_world_is_told_as_one(recording: Recording) -> None:
    ran = recording.of("tensor_parallel.py", "--fake", "-n", "1024", "--ranks", "0,8", TP="8")
    assert ran.code == 3, ran.output + ran.errors
    assert "2 of 1024 ranks are recorded" in ran.result["reason"]
