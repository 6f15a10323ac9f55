"""Processes that die end a launch, never a run, and leave an account of what they did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from sampling import sampled

from torch_scenarios.errors import LaunchError
from torch_scenarios.execution import Launcher, LaunchOptions
from torch_scenarios.execution.heartbeat import is_stopped
from torch_scenarios.worker.fork_server import Launch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.torch.conftest import AnalysedCase
    from torch_scenarios.model.trace import Trace

pytestmark = pytest.mark.torch

FINE = "world_size: 3\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}}]\n"


@pytest.mark.parametrize(("fault", "died"), [("kill", "SIGKILL"), ("exit", "exit 1")])
def test_a_fault_ends_a_process_and_its_peers_lose_it(
    fault: str, died: str, observe: Callable[[str], Trace]
) -> None:
    trace = observe(
        f"""\
world_size: 3
timeout: 60s
tensors: {{x: [1]}}
steps:
  - all_reduce: {{tensor: x}}
  - {{ranks: 1, fault: {fault}}}
  - all_reduce: {{tensor: x}}
    expect: {{raises: peer_lost}}
"""
    )
    assert trace.outcome == "crash"
    assert trace.ranks[1].died == died
    assert trace.ranks[1].events[0].writes["x"].tolist() == [3]
    for rank in (0, 2):
        failure = trace.ranks[rank].events[-1].failure
        assert failure is not None
        assert failure.kinds == ("peer_lost",)
    assert observe(FINE).outcome == "completes"


def test_workers_share_no_socket_with_the_process_that_forked_them(
    observe: Callable[[str], Trace], launcher: Launcher
) -> None:
    """A store that serves while a worker is forked leaves its sockets and its event loop there."""

    def sockets(pid: int) -> set[str]:
        links = set()
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # it was closed meanwhile
                links.add(str(entry.readlink()))
        return {each for each in links if each.startswith("socket:")}

    assert observe(FINE).outcome == "completes"
    host, *workers = launcher.processes()
    assert len(workers) >= 3
    for worker in workers:
        assert not sockets(worker) & sockets(host)


def test_an_abort_by_gloo_is_told_with_its_words(observe: Callable[[str], Trace]) -> None:
    trace = observe(
        """\
world_size: 2
tensors: {x: {0: [1, 2, 3, 4], 1: [0]}}
steps:
  - {ranks: 0, send: {tensor: x, dst: 1}}
  - {ranks: 1, recv: {tensor: x, src: 0}}
"""
    )
    assert trace.outcome == "crash"
    assert trace.ranks[1].died == "SIGABRT"
    assert trace.ranks[1].events[-1].label == "recv from 0"
    assert any("Received data size doesn't match" in note for note in trace.notes)
    assert observe(FINE).outcome == "completes"


def test_a_raise_ends_a_rank_and_no_process(
    observe: Callable[[str], Trace], launcher: Launcher
) -> None:
    observe(FINE)
    workers = launcher.processes()
    trace = observe(
        """\
world_size: 2
tensors: {x: [1]}
steps:
  - {ranks: 1, fault: {raise: out of luck}}
  - all_reduce: {tensor: x}
"""
    )
    assert trace.outcome == "error"
    kinds = [rank.events[-1].failure.kinds for rank in trace.ranks if rank.events[-1].failure]
    assert kinds == [("peer_lost",), ("other",)]
    assert observe(FINE).outcome == "completes"
    assert launcher.processes() == workers


def test_a_crash_of_the_backend_stays_one(
    analysed: Callable[[str], AnalysedCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "crashes.py").write_text(CRASHING, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with Launcher(LaunchOptions(plugins=("crashes",))) as launcher:
        trace = analysed(FINE).run_on(launcher)
    assert trace.outcome == "crash"
    assert trace.ranks[1].died == "SIGSEGV"


#: rank 1's all_reduce crashes as a backend does
CRASHING = """\
import os
import signal

import torch.distributed as dist

if os.environ["RANK"] == "1":
    dist.all_reduce = lambda *_, **__: os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_no_rank_takes_a_step_before_every_rank_is_ready(
    analysed: Callable[[str], AnalysedCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late.py").write_text(LATE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with Launcher(LaunchOptions(plugins=("late",))) as launcher:
        program = analysed(
            "world_size: 3\ntensors: {x: [1]}\nsteps:\n  - {ranks: 0, fault: kill}\n"
            "  - all_reduce: {tensor: x}\n    expect: {raises: peer_lost}\n"
        )
        trace = program.run_on(launcher)
    assert trace.ranks[0].died == "SIGKILL"
    assert (tmp_path / "ready").exists()


#: rank 2's world stands late, and rank 0 dies as its program says only where it stood before
LATE = """\
import os
import pathlib
import time

import torch.distributed as dist
import torch_scenarios.worker.serve

make, die = dist.init_process_group, torch_scenarios.worker.serve.die


def late(*arguments, **more):
    make(*arguments, **more)
    time.sleep(1)
    pathlib.Path("ready").touch()


def dying(how):
    die(how if pathlib.Path("ready").exists() else "exit 7")


if os.environ["RANK"] == "2":
    dist.init_process_group = late
torch_scenarios.worker.serve.die = dying
"""


@pytest.mark.parametrize("times", [1, 2])
def test_a_world_whose_connections_fail_is_made_once_more(
    times: int,
    analysed: Callable[[str], AnalysedCase],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "cut.py").write_text(CUT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUT_TIMES", str(times))
    with Launcher(LaunchOptions(plugins=("cut",))) as launcher:
        assert analysed(FINE).run_on(launcher).outcome == "completes"
        workers = launcher.processes()
        assert analysed(GROUPED).run_on(launcher).outcome == "completes"
        assert launcher.processes() == workers


def test_a_world_that_is_never_connected_ends_one_case(
    analysed: Callable[[str], AnalysedCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cut.py").write_text(CUT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUT_TIMES", "3")
    never = pytest.raises(
        LaunchError, match=r"rank 1 could not run it: .*Connection closed by peer"
    )
    with Launcher(LaunchOptions(plugins=("cut",))) as launcher, never:
        analysed(FINE).run_on(launcher)


GROUPED = FINE.replace("tensors:", "groups: {pair: [0, 1]}\ntensors:")
#: rank 1 loses the first connections of its worlds, and of the first group that it creates
CUT = """\
import os

import torch.distributed as dist


def cutting(make, times):
    def made(*arguments, **more):
        nonlocal times
        group = make(*arguments, **more)
        if times:
            times -= 1
            raise RuntimeError("Gloo connectFullMesh failed with: Connection closed by peer")
        return group
    return made


if os.environ["RANK"] == "1":
    times = int(os.environ["CUT_TIMES"])
    dist.init_process_group = cutting(dist.init_process_group, times)
    dist.new_group = cutting(dist.new_group, times)
"""

SLOW = "world_size: 2\nsteps: [{sleep: 5s}]\n"


def later(act: Callable[[], None]) -> threading.Thread:
    def wait_and_act() -> None:
        time.sleep(0.5)
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


def test_a_worker_killed_from_outside_is_named(
    analysed: Callable[[str], AnalysedCase],
) -> None:
    with Launcher(LaunchOptions()) as launcher:
        analysed(FINE).run_on(launcher)
        host, *workers = launcher.processes()
        assert host not in workers
        thread = later(lambda: os.kill(workers[0], signal.SIGKILL))
        killed = rf"rank 0 \(process {workers[0]}\) was killed from outside by SIGKILL"
        with pytest.raises(LaunchError, match=killed):
            analysed(SLOW).run_on(launcher)
        thread.join()
        assert analysed(FINE).run_on(launcher).outcome == "completes"


def test_a_host_killed_from_outside_ends_one_scenario(
    analysed: Callable[[str], AnalysedCase],
) -> None:
    with Launcher(LaunchOptions()) as launcher:
        analysed(FINE).run_on(launcher)
        host = launcher.processes()[0]
        thread = later(lambda: os.kill(host, signal.SIGKILL))
        with pytest.raises(LaunchError, match=rf"holds the workers \({host}\) ended \(SIGKILL"):
            analysed(SLOW).run_on(launcher)
        thread.join()
        assert analysed(FINE).run_on(launcher).outcome == "completes"


@pytest.mark.parametrize(
    ("victim", "moment"),
    sampled([("host", "before"), ("host", "meanwhile"), ("worker", "meanwhile")], 2),
)
def test_a_stopped_process_ends_one_scenario(
    victim: str,
    moment: str,
    analysed: Callable[[str], AnalysedCase],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch_scenarios.execution.heartbeat.STOPPED_S", 2.0)
    with Launcher(LaunchOptions()) as launcher:
        analysed(FINE).run_on(launcher)
        host, *workers = launcher.processes()
        pid = host if victim == "host" else workers[1]
        slow = analysed("world_size: 3\nsteps:\n  - sleep: 1s\n  - barrier: {}\n")
        thread = later(lambda: os.kill(pid, signal.SIGSTOP))
        if moment == "before":
            thread.join()
        who = "process that holds the workers" if victim == "host" else "rank [012]"
        with pytest.raises(LaunchError, match=f"{who} was given up: process {pid} is stopped"):
            slow.run_on(launcher)
        thread.join()
        assert analysed(FINE).run_on(launcher).outcome == "completes"
        assert pid not in launcher.processes()


def test_a_worker_that_runs_no_python_ends_one_scenario(
    analysed: Callable[[str], AnalysedCase], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "holds_the_lock.py").write_text(HOLDING, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch_scenarios.execution.heartbeat.SILENT_S", 3.0)
    given_up = pytest.raises(LaunchError, match=r"rank 0 was given up: .* shows no sign of life")
    with Launcher(LaunchOptions(plugins=("holds_the_lock",))) as launcher, given_up:
        analysed(FINE).run_on(launcher)


#: a call in C that keeps the interpreter's lock, on rank 0
HOLDING = """\
import ctypes
import os

if os.environ["RANK"] == "0":
    ctypes.PyDLL(None).sleep(60)
"""


def test_a_launch_ends_though_its_agent_reaps_a_worker_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    launch = Launch(1, 1)
    launch.ended.set()
    gone = SimpleNamespace(pid=child.pid, exitcode=None)  # as multiprocessing still believes
    monkeypatch.setattr("torch_scenarios.worker.fork_server.active_children", lambda: [gone])
    launch.end()
    with pytest.raises(OSError, match="file descriptor"):
        os.fstat(launch.gate[1])


def test_idle_workers_that_the_agent_ends_are_no_killing(
    analysed: Callable[[str], AnalysedCase],
) -> None:
    exits = """
world_size: 2
tensors: {x: [1]}
steps:
  - barrier: {}
  - {fault: exit, ranks: 0}
  - {sleep: 2s, ranks: 1}
expect: {outcome: crash, dies: {0: exit 1}}
"""
    with Launcher(LaunchOptions()) as launcher:
        analysed("world_size: 4\nsteps: [{barrier: {}}]\n").run_on(launcher)
        assert analysed(exits).run_on(launcher).outcome == "crash"


def until_stopped(pid: int) -> None:
    """Wait until the kernel calls a process stopped: every thread of it has to take the signal.

    On a busy machine that is later than the next scenario begins, and stops one of its ranks.
    """
    while not is_stopped(pid):
        time.sleep(0.001)


@pytest.mark.parametrize("number", sampled([signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM], 2))
def test_a_worker_lost_between_two_scenarios_costs_neither(
    number: signal.Signals, analysed: Callable[[str], AnalysedCase]
) -> None:
    with Launcher(LaunchOptions()) as launcher:
        analysed(FINE).run_on(launcher)
        for _ in range(5):
            _, *workers = launcher.processes()
            os.kill(workers[1], number)
            if number == signal.SIGSTOP:
                until_stopped(workers[1])
            assert analysed(FINE).run_on(launcher).outcome == "completes"
