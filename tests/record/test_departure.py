"""What a rank waits for that is in no call: by its stack, and the line that it is in."""

from __future__ import annotations

import sysconfig
from typing import TYPE_CHECKING

import pytest

from torch_scenarios.record.evidence.reasons import explain_idle

if TYPE_CHECKING:
    from pathlib import Path

LIB = sysconfig.get_path("stdlib")
SCRIPT = """\
class Writer:
    def add(self):
        with self.lock:
            self.flush()

    def flush(self):
        with self.lock:
            self.rows.clear()


lock.acquire()
lock.acquire()
"""


def stack(*frames: tuple[str, int, str]) -> str:
    lines = [f'  File "{file}", line {line} in {name}' for file, line, name in frames]
    return "\n".join(["Current thread 0x1 (most recent call first):", *lines])


@pytest.mark.parametrize(
    ("file", "name", "words"),
    [
        (f"{LIB}/subprocess.py", "_wait", "for a program that it has started"),
        (f"{LIB}/multiprocessing/popen_fork.py", "poll", "for a process that it has started"),
        (f"{LIB}/multiprocessing/queues.py", "get", "for another process to put something"),
        (f"{LIB}/queue.py", "get", "for something to come into its queue"),
        (f"{LIB}/queue.py", "put", "for room in a queue that is full"),
        (f"{LIB}/socket.py", "readinto", "for another machine, or server"),
        (f"{LIB}/threading.py", "join", "for a thread of its own to end"),
        (f"{LIB}/threading.py", "wait", "for another thread of its own to wake it"),
        ("/x/site-packages/torch/utils/file_baton.py", "wait", "for another process to build"),
        ("/x/site-packages/torch/utils/data/dataloader.py", "_try_get_data", "for a worker of"),
    ],
)
def test_where_a_stack_ends_says_what_a_rank_waits_for(
    tmp_path: Path, file: str, name: str, words: str
) -> None:
    text = stack((file, 7, name), (str(tmp_path / "train.py"), 3, "main"))
    line, fix = explain_idle({}, {1: text}, {1: "`upload.sh`"}, str(tmp_path))
    assert line.startswith(f"rank 1 waits at train.py:3 {words}")
    assert line.endswith(": `upload.sh`") is ("program" in words)
    assert fix.startswith("fix: ")


@pytest.mark.parametrize(
    ("frames", "held"),
    [
        (((7, "flush"), (4, "add")), "self.lock`, which it holds itself since train.py:3"),
        (((12, "<module>"),), "lock`, which it holds itself since train.py:11"),
        (((7, "flush"),), "the lock `self.lock`, which another thread holds"),
    ],
)
def test_a_lock_is_told_with_the_line_that_took_it(
    tmp_path: Path, frames: tuple[tuple[int, str], ...], held: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    text = stack(*((str(script), line, name) for line, name in frames))
    (line, _) = explain_idle({}, {0: text}, {}, str(tmp_path))
    assert held in line
