"""Which processes are ranks of one launch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: rank 0 chooses where ranks meet and starts the others with it, as Lightning does
STARTS_OTHERS = """
import os, subprocess, sys
from torch_scenarios.record.recorder import launch
if "MASTER_PORT" not in os.environ:
    os.environ["MASTER_PORT"] = sys.argv[1]
    subprocess.run([sys.executable, *sys.argv], check=True)
print(launch(), flush=True)
"""
#: each spawned rank chooses for itself
CHOOSES_FOR_ITSELF = """
import multiprocessing, os, sys
from torch_scenarios.record.recorder import launch
def run(rank):
    os.environ["MASTER_PORT"] = sys.argv[1] + str(rank)
    print(launch(), flush=True)
if __name__ == "__main__":
    for rank in range(2):
        started = multiprocessing.get_context("spawn").Process(target=run, args=(rank,))
        started.start()
        started.join()
"""


def launches_of(script: Path, port: str) -> list[str]:
    """Return what each rank of a script says of its launch."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("MASTER_")}
    command = [sys.executable, str(script), port]
    return subprocess.check_output(command, text=True, env=known, timeout=300).split()


@pytest.mark.parametrize("text", [STARTS_OTHERS, CHOOSES_FOR_ITSELF])
def test_ranks_that_were_started_together_are_of_one_launch(tmp_path: Path, text: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(text, encoding="utf-8")
    first = launches_of(script, "4000")
    assert len(first) == 2
    assert len({*first}) == 1


def test_a_program_that_chooses_another_port_is_another_launch(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(STARTS_OTHERS, encoding="utf-8")
    assert launches_of(script, "4000")[0] != launches_of(script, "4001")[0]
