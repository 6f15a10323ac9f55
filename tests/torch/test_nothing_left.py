"""No process, port or file outlives a run, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from processes import ended, left_in, of_run, until
from sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.torch, pytest.mark.slow]

#: seconds after which nothing may be left
GONE_S = 5.0

BUSY = """\
world_size: 4
timeout: 600s
tensors: {x: [1]}
steps:
  - {ranks: 0, sleep: 60s}
  - all_reduce: {tensor: x}
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    path = tmp_path / "busy.yaml"
    path.write_text(BUSY, encoding="utf-8")
    files = tmp_path / "tmp"
    files.mkdir()
    mark = f"SCENARIO_TEST={tmp_path.name}-{os.getpid()}"
    name, _, value = mark.partition("=")
    process = subprocess.Popen(
        [sys.executable, "-c", "from torch_scenarios.cli import main; main()", "run", str(path)],
        env={**os.environ, name: value, "TMPDIR": str(files)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    yield process, mark
    ended(process)


@pytest.mark.parametrize("number", sampled([signal.SIGKILL, signal.SIGINT], 2))
def test_several_launches_end_with_their_run(number: signal.Signals, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / f"{name}.yaml").write_text(BUSY.replace("world_size: 4", "world_size: 2"))
    mark = f"SCENARIO_TEST={tmp_path.name}-{os.getpid()}"
    name, _, value = mark.partition("=")
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "torch_scenarios.cli",
            "run",
            "--no-cache",
            "-j2",
            "--json",
            "r.json",
        ],
        cwd=tmp_path,
        env={**os.environ, name: value},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        # the run, and for each launch a host and its workers
        assert until(children_of(mark, 1 + 2 * 3), 60)
        process.send_signal(number)
        assert until(lambda: not set(of_run(mark)) - {process.pid}, GONE_S)
        output, _ = process.communicate(timeout=GONE_S)
        assert process.returncode == (130 if number == signal.SIGINT else -number), output.decode()
    finally:
        ended(process)


def children_of(mark: str, count: int) -> Callable[[], bool]:
    return lambda: len(of_run(mark)) >= count


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL)
MOMENTS = ("while workers run", "while torch is imported")


# at one moment or the other
@pytest.mark.parametrize(("moment", "number"), sampled(list(product(MOMENTS, SIGNALS)), 4))
def test_a_launcher_that_ends_takes_everything_with_it(
    number: signal.Signals, moment: str, run: tuple[subprocess.Popen[bytes], str], tmp_path: Path
) -> None:
    process, mark = run
    everybody = 6 if moment == "while workers run" else 2
    assert until(children_of(mark, everybody), 60)
    time.sleep(0.3)
    process.send_signal(number)
    assert until(lambda: not set(of_run(mark)) - {process.pid}, GONE_S)
    output, _ = process.communicate(timeout=GONE_S)
    assert of_run(mark) == []
    assert left_in(tmp_path / "tmp") == []
    if number not in {signal.SIGKILL, signal.SIGQUIT}:
        assert process.returncode == 130, output.decode()


@pytest.mark.parametrize("victim", sampled(["host", "worker"], 2))
def test_a_killed_process_behind_the_run_leaves_nothing(
    victim: str, run: tuple[subprocess.Popen[bytes], str], tmp_path: Path
) -> None:
    process, mark = run
    assert until(children_of(mark, 6), 60)
    time.sleep(0.5)
    _, host, *workers = of_run(mark)
    os.kill(host if victim == "host" else workers[-1], signal.SIGKILL)
    output, _ = process.communicate(timeout=60)
    assert process.returncode in {1, 3}, output.decode()
    assert until(lambda: of_run(mark) == [], GONE_S)
    assert left_in(tmp_path / "tmp") == []
    assert not list(Path(tempfile.gettempdir()).glob(f"*{mark.partition('=')[2]}*"))
