"""Another user connects to all that a run has open: he runs no code, and writes no message."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import intruder
import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="to be another user needs root"),
]

ENDS_S = 120.0
#: looks, a tenth of a second apart, at which the same ports have to be open
STILL = 15
#: a word of the scenario, which is in its plan, its marks and its trace
WORD = "unheard_of"
RIGHT = f"""\
world_size: 2
timeout: 60s
tensors: {{{WORD}: [1]}}
steps:
  - compute: {{{WORD}: {WORD} + 20}}
  - barrier: {{}}
  - sleep: 20s
  - all_reduce: {{tensor: {WORD}}}
    expect: {{{WORD}: [42]}}
"""
#: what its backend does is not what it says: it takes the other ending of two
WRONG = """\
world_size: 2
timeout: 5s
tensors: {x: [1]}
steps:
  - barrier: {}
  - sleep: 20s
  - recv: {tensor: x, src: "(rank + 1) % 2"}
expect: {outcome: completes}
"""


def started(words: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def until_ranks_sleep(run: subprocess.Popen[str], most: int) -> None:
    """Wait until the ranks of a run listen to each other, which is so while they sleep."""
    ports, same = set[tuple[int, str, int]](), 0
    while run.poll() is None and (len(ports) < most or same < STILL):
        time.sleep(0.1)
        before, ports = ports, {*intruder.opens(intruder.processes(run.pid))[0]}
        same = same + 1 if ports == before else 0


def intrude(words: Sequence[str], folder: Path, made: Path, how: str) -> tuple[dict[str, Any], str]:
    """Run a case with an intruder; return what he found, and what the run printed."""
    him = subprocess.Popen(
        [sys.executable, intruder.__file__, str(made), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert him.stdout is not None
    assert him.stdout.readline() == "ready\n"
    run = started(words, folder)
    until_ranks_sleep(run, 3)
    found: dict[str, Any] = json.loads(him.communicate(f"{run.pid}\n", timeout=ENDS_S)[0])
    return found, run.communicate(timeout=ENDS_S)[0]


BIN = Path(sys.executable).parent
RUN = [str(BIN / "scenario"), "run", "--no-cache", "--json", "results.json", "case.yaml"]
TORCHRUN = [
    *(str(BIN / "torchrun"), "--nproc-per-node", "2", "-m", "torch_scenarios.worker"),
    *("--json", "results.json", "case.yaml"),
]


def verdicts(folder: Path) -> list[str]:
    text = (folder / "results.json").read_text(encoding="utf-8")
    return [each["verdict"] for each in json.loads(text)["results"]]


@pytest.mark.parametrize(
    ("words", "hidden"), [(RUN, True), (TORCHRUN, False)], ids=["scenario run", "torchrun"]
)
def test_he_runs_nothing_and_reads_what_is_in_the_store_of_torchrun_alone(
    words: list[str], *, hidden: bool, tmp_path: Path
) -> None:
    """Under torchrun our sealed messages are in torch's store: he reads them, and writes none."""
    (tmp_path / "case.yaml").write_text(RIGHT, encoding="utf-8")
    made = Path("/tmp") / f"planted-{os.getpid()}"  # noqa: S108 -- where any user may write
    found, output = intrude(words, tmp_path, made, "look")
    assert found["ports"] >= 1, output
    assert found["sockets"] >= 1, output
    assert any(name.startswith("key ") for name in found["read"]), found
    assert hidden == (WORD not in json.dumps(found))
    assert not made.exists()
    assert verdicts(tmp_path) == ["PASSED"], output


def test_what_he_disturbs_ends_and_never_passes(tmp_path: Path) -> None:
    (tmp_path / "case.yaml").write_text(WRONG, encoding="utf-8")
    made = Path("/tmp") / f"planted-{os.getpid()}"  # noqa: S108 -- where any user may write
    _, output = intrude([*RUN[:2], "--confirm", "timeout", *RUN[2:]], tmp_path, made, "disturb")
    assert not made.exists()
    assert verdicts(tmp_path) != ["PASSED"], output
