"""A machine that cannot start a launch says what it lacks, once, and no case waits for it again."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from sampling import sampled

from torch_scenarios.execution.backends import lack_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SUM = """\
world_size: WORLD
tensors: {x: [1]}
steps:
  - all_reduce: {tensor: x}
    expect: {x: [WORLD]}
"""
RUN = [sys.executable, "-c", "from torch_scenarios.cli import main; main()", "run", "--no-cache"]
#: stands in for a limit on processes, which does not bind root
LACKING = """\
import os
import threading

start = threading.Thread.start


def no_thread(thread):
    if "RANK" in os.environ:
        raise RuntimeError("can't start new thread")
    start(thread)


def no_process():
    raise BlockingIOError(11, "Resource temporarily unavailable")


if os.environ["LACKS"] == "threads":
    threading.Thread.start = no_thread
if os.environ["LACKS"] == "processes":
    os.fork = no_process
"""
NO_PROCESSES = "no more processes or threads can be started"
NO_LOOPBACK = "no connection can be made on 127.0.0.1: the loopback interface is down"


def verdicts(folder: Path, before: list[str], lacks: str = "", files: int = 0) -> list[str | None]:
    """Run three scenarios; return why each is inconclusive, None for one that is not."""
    for number in range(3):
        text = SUM.replace("WORLD", "2")
        (folder / f"case_{number}.yaml").write_text(text, encoding="utf-8")
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(LACKING, encoding="utf-8")
    report = folder / "report.json"

    def limit() -> None:
        if files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    done = subprocess.run(
        [*before, *RUN, str(folder), "--json", str(report)],
        env={**os.environ, "PYTHONPATH": str(folder / "site"), "LACKS": lacks},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 3, done.stdout + done.stderr
    results = json.loads(report.read_text(encoding="utf-8"))["results"]
    return [each["reason"] if each["verdict"] == "INCONCLUSIVE" else None for each in results]


def all_say(reasons: list[str | None], words: str) -> bool:
    return len(reasons) == 3 and len(set(reasons)) == 1 and words in str(reasons[0])


@pytest.mark.parametrize("files", sampled([20, 14, 28], 3))
def test_no_file_descriptors(files: int, tmp_path: Path) -> None:
    reasons = verdicts(tmp_path, [], files=files)
    assert all_say(reasons, f"a process may have {files} files open, and has"), reasons


@pytest.mark.nightly
@pytest.mark.parametrize("lacks", sampled(["processes", "threads"], 2))
def test_no_processes(lacks: str, tmp_path: Path) -> None:
    reasons = verdicts(tmp_path, [], lacks)
    assert all_say(reasons, NO_PROCESSES), reasons


def test_no_loopback(tmp_path: Path) -> None:
    alone = ["unshare", "--net"]
    tool = shutil.which("unshare")
    if (
        tool is None
        or subprocess.run([*alone, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("a network namespace needs `unshare` and the right to make one")
    reasons = verdicts(tmp_path, alone)
    assert all_say(reasons, NO_LOOPBACK), reasons


@pytest.mark.parametrize(
    ("words", "lack"),
    [
        ("OSError: [Errno 24] Too many open files", "files open"),
        ("device.cc:186] rv != -1. -1 vs -1. Too many open files", "files open"),
        ("RuntimeError: can't start new thread", NO_PROCESSES),
        ("BlockingIOError: [Errno 11] Resource temporarily unavailable", NO_PROCESSES),
        ("OSError: [Errno 12] Cannot allocate memory", "not enough memory"),
        ("OSError: [Errno 98] Address already in use", "no port is free"),
        ("OSError: [Errno 101] Network is unreachable", NO_LOOPBACK),
    ],
)
def test_what_a_machine_lacks_is_told_in_words(words: str, lack: str) -> None:
    assert lack in str(lack_of(words))


@pytest.mark.parametrize("words", ["", "Connection closed by peer [127.0.0.1]:24", "Errno 111222"])
def test_other_words_tell_of_no_lack(words: str) -> None:
    assert lack_of(words) is None
