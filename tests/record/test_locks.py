"""A rank that waits for a lock on a file: who holds it, and which file that is."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from handwritten_records import ALL_REDUCE, BARRIER, recorded

from torch_scenarios.record.findings import find_locked
from torch_scenarios.record.format import read
from torch_scenarios.record.live import read_locks, take_stacks


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the kernel shows no locks")
def test_a_process_that_waits_for_a_lock_is_seen_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "cache.lock"
    program = f"import fcntl; fcntl.flock(open({str(path)!r}, 'a'), fcntl.LOCK_EX)"
    with path.open("a", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = subprocess.Popen([sys.executable, "-c", program])
        ranks = {waiting.pid: 1, os.getpid(): 0}
        found: dict[int, tuple[int, str]] = {}
        until = time.monotonic() + 60
        while not found and time.monotonic() < until:
            time.sleep(0.05)
            found = read_locks(ranks)
        assert found == {1: (0, str(path))}
        assert read_locks({waiting.pid: 1}) == {}
    waiting.wait(timeout=60)
    assert read_locks(ranks) == {}


def test_a_process_that_gets_no_time_at_first_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "rank-00000.stack"
    program = (
        "import faulthandler, signal, time\n"
        f"faulthandler.register(signal.SIGUSR1, file=open({str(path)!r}, 'w'))\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGSTOP)
        again = threading.Timer(0.6, process.send_signal, (signal.SIGCONT,))
        again.start()
        found = take_stacks({0: (process.pid, path)})
        again.join()
        process.kill()
    assert "line 3 in <module>" in found[0]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel shows no signals")
def test_a_process_that_no_longer_listens_is_not_ended_by_the_question(tmp_path: Path) -> None:
    path = tmp_path / "parent.stack"
    path.write_text("", encoding="utf-8")
    program = "print('ready', flush=True); input()"
    command = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        found = take_stacks({0: (process.pid, path)})
        process.communicate("\n", timeout=60)
    assert found == {0: ""}
    assert process.returncode == 0


def test_a_lock_of_a_rank_that_waits_in_a_call_is_a_circle(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a", (ALL_REDUCE, BARRIER), (ALL_REDUCE,))
    path = folder / "rank-00000.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()[:-2]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    records, locks = read(folder), {1: (0, "/data/cache.lock")}
    found = find_locked(records, locks, "/me")
    assert found is not None
    assert found.because == (
        "rank 1 waits for the lock on /data/cache.lock, which rank 0 holds",
        "rank 0 waits in barrier (train.py:13) for rank 1",
    )
    assert find_locked(records, {0: (1, "/data/cache.lock")}, "/me") is None  # it goes on
