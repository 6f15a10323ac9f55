"""A process that has imported torch: runs are forked from it, whatever became of the one before."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from torch_scenarios.errors import LaunchError
from torch_scenarios.record.format import read_launch
from torch_scenarios.record.live import RunOrder, WarmLaunch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch_scenarios.record.live import RunProcess

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture
def launch() -> Iterator[WarmLaunch]:
    """Start runs, and end the process when the test is over."""
    found = WarmLaunch()
    yield found
    found.close()


def order(folder: Path, text: str) -> RunOrder:
    """Return the order to run a script on one rank."""
    folder.mkdir()
    script = folder / "script.py"
    script.write_text(text, encoding="utf-8")
    return RunOrder(command=(str(script),), folder=folder, world_size=1, ranks=(0,))


@pytest.mark.nightly
def test_a_run_has_its_own_exit_code_after_one_that_was_left(
    launch: WarmLaunch, tmp_path: Path
) -> None:
    left = launch.start(order(tmp_path / "left", "import time\ntime.sleep(600)\n"))
    assert left.poll() is None
    found = order(tmp_path / "next", "raise SystemExit(3)\n")
    assert launch.start(found).wait(60) == 0
    assert read_launch(found.folder).exits == {0: 3}
    deadline = time.monotonic() + 10
    while _lives(left) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _lives(left)


def _lives(run: RunProcess) -> bool:
    try:
        os.killpg(run.pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_interrupt_while_a_run_starts_is_no_answer_of_the_next(
    launch: WarmLaunch, tmp_path: Path
) -> None:
    first = order(tmp_path / "first", "raise SystemExit(1)\n")
    timer = threading.Timer(0.3, signal.raise_signal, (signal.SIGINT,))  # it imports torch by then
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        launch.start(first)
    found = order(tmp_path / "next", "raise SystemExit(3)\n")
    assert launch.start(found).wait(60) == 0
    assert read_launch(found.folder).exits == {0: 3}
    assert not read_launch(first.folder).exits


@pytest.mark.nightly
def test_a_process_that_was_killed_is_begun_anew_and_its_run_says_so(
    launch: WarmLaunch, tmp_path: Path
) -> None:
    run = launch.start(order(tmp_path / "killed", "import time\ntime.sleep(600)\n"))
    parent = int(_field_of(run.pid, 1))
    os.kill(parent, signal.SIGKILL)
    with pytest.raises(LaunchError, match="signal 9 has ended the process that imports torch"):
        run.wait(60)
    found = order(tmp_path / "next", "raise SystemExit(3)\n")
    assert launch.start(found).wait(60) == 0
    assert read_launch(found.folder).exits == {0: 3}


def _field_of(pid: int, field: int) -> str:
    """Return a field of a process' line in /proc, counted behind its name; 1 is its parent."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return text.rpartition(")")[2].split()[field]
