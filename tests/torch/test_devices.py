"""Workers whose device lags behind their host, without one: its events are a plugin's own.

The plugin puts a device into real workers that does in order what is enqueued on it and hangs where
the test says. Everything but CUDA is real: processes, the store, Gloo, the supervisor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from torch_scenarios.errors import LaunchError
from torch_scenarios.execution import Launcher, LaunchOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.torch.conftest import AnalysedCase
    from torch_scenarios.model.trace import Trace

pytestmark = pytest.mark.torch

DEVICE = '''\
import threading
import time

import torch.distributed as dist

import torch_scenarios.worker.serve
from torch_scenarios.worker.world import World


class Device:
    """Hangs at a call, in every event after it, until the world is dropped."""

    enqueues = True
    hung = lost = False

    def begin(self):
        Device.hung = Device.lost = False
        self.began_s = time.monotonic()

    def mark(self):
        return Event()

    def seconds(self, event):
        return event.at_s - self.began_s


class Event:
    def __init__(self):
        self.done, self.lost, self.at_s = not Device.hung, Device.lost, time.monotonic()

    def query(self):
        if self.lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return self.done


def hang(*args, **options):
    Device.hung = True


def lose(*args, **options):
    Device.lost = True


released = threading.Event()
poison = World.poison


def wait_on_the_host(*args, **options):
    """As NCCL's barrier: waits for the stream, and is told nothing when that is aborted."""
    Device.hung = True
    released.clear()
    released.wait()
    Device.hung = False


def release(world):
    released.set()
    poison(world)


World.poison = release
dist.recv = hang
dist.broadcast = lose
dist.barrier = wait_on_the_host
torch_scenarios.worker.serve.completion_on = lambda torch, device: Device()
torch_scenarios.worker.serve.DeviceCopies = lambda torch, device: torch.stack
'''

#: makes the host take every backend for one on devices, so that it asks for proof after a hang
PROVING = """\
import torch_scenarios.execution.supervisor

torch_scenarios.execution.supervisor.device_type = lambda backend: "cuda"
"""

#: a device that cannot be used again
USELESS = DEVICE + "World.works = lambda world: False\n"

BOTH_RECEIVE = """\
world_size: 2
timeout: 20s
tensors: {x: [1]}
steps:
  - all_reduce: {tensor: x}
  - recv: {tensor: x, src: "1 - rank"}
  - send: {tensor: x, dst: "1 - rank"}
"""
SUM = "world_size: 2\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}}]\n"


@pytest.fixture
def on_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    (tmp_path / "lagging_device.py").write_text(DEVICE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with Launcher(LaunchOptions(backend="gloo", plugins=("lagging_device",))) as launcher:
        yield launcher


def stands(trace: Trace) -> list[tuple[int, str]]:
    return [(rank.events[-1].index, rank.events[-1].state) for rank in trace.ranks]


def test_what_is_issued_completes_later_on_the_devices_clock(
    on_device: Launcher, analysed: Callable[[str], AnalysedCase]
) -> None:
    trace = analysed(SUM).run_on(on_device)
    assert trace.outcome == "completes"
    for rank in trace.ranks:
        (event,) = rank.events
        assert event.complete_s is not None
        assert event.complete_s > 0.0
        assert event.writes["x"].tolist() == [2]


def test_a_hang_on_the_device_is_found_where_it_is_though_the_host_ran_on(
    on_device: Launcher, analysed: Callable[[str], AnalysedCase]
) -> None:
    trace = analysed(BOTH_RECEIVE).run_on(on_device)
    assert trace.outcome == "deadlock"
    assert stands(trace) == [(1, "blocked"), (1, "blocked")]
    assert [len(rank.events) for rank in trace.ranks] == [2, 2]


def test_the_same_processes_run_the_next_scenario_after_a_hang_on_the_device(
    on_device: Launcher, analysed: Callable[[str], AnalysedCase]
) -> None:
    assert analysed(BOTH_RECEIVE).run_on(on_device).outcome == "deadlock"
    before = on_device.processes()
    assert analysed(SUM).run_on(on_device).outcome == "completes"
    assert on_device.processes() == before


def test_a_host_that_comes_back_without_a_word_is_still_blocked(
    on_device: Launcher, analysed: Callable[[str], AnalysedCase]
) -> None:
    lonely = (
        "world_size: 2\ntimeout: 20s\ntensors: {x: [1]}\n"
        "steps: [{all_reduce: {tensor: x}}, {ranks: 0, barrier: {}}]\n"
    )
    trace = analysed(lonely).run_on(on_device)
    assert trace.outcome == "deadlock"
    assert [rank.ending for rank in trace.ranks] == ["blocked", "finished"]
    before = on_device.processes()
    assert analysed(SUM).run_on(on_device).outcome == "completes"
    assert on_device.processes() == before


def test_a_hang_that_nothing_predicts_ends_with_the_timeout_of_its_group(
    on_device: Launcher, analysed: Callable[[str], AnalysedCase]
) -> None:
    text = """\
world_size: 2
timeout: 500ms
tensors: {x: [1]}
steps:
  - {ranks: 0, send: {tensor: x, dst: 1}}
  - {ranks: 1, recv: {tensor: x, src: 0}, expect: {raises: timeout}}
"""
    trace = analysed(text).run_on(on_device)
    failure = trace.ranks[1].events[-1].failure
    assert failure is not None
    assert failure.kinds == ("timeout",)
    assert "0.5 s" in failure.message


@pytest.mark.parametrize(
    ("device", "lives"),
    [
        pytest.param(DEVICE, True, id="proven", marks=pytest.mark.nightly),
        pytest.param(USELESS, False, id="not_proven"),
    ],
)
def test_after_an_abort_a_fresh_world_proves_that_the_processes_are_of_use(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    analysed: Callable[[str], AnalysedCase],
    *,
    device: str,
    lives: bool,
) -> None:
    (tmp_path / "lagging_device.py").write_text(device, encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text(PROVING, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Launcher(LaunchOptions(backend="gloo", plugins=("lagging_device",))) as launcher:
        assert analysed(BOTH_RECEIVE).run_on(launcher).outcome == "deadlock"
        before = launcher.processes()
        assert analysed(SUM).run_on(launcher).outcome == "completes"
        assert (launcher.processes() == before) is lives


#: a world that is never made, on a host that gives worlds half a second
ENDLESS = """\
import time
from torch_scenarios.worker.world import World

World.start = lambda *args: time.sleep(600)
"""
IMPATIENT = PROVING + "torch_scenarios.execution.supervisor.WORLD_S = 0.5\n"


def test_a_world_that_is_never_made_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, analysed: Callable[[str], AnalysedCase]
) -> None:
    (tmp_path / "lagging_device.py").write_text(ENDLESS, encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text(IMPATIENT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        Launcher(LaunchOptions(backend="gloo", plugins=("lagging_device",))) as launcher,
        pytest.raises(LaunchError, match=r"could not make its world within 0\.5 s"),
    ):
        analysed(SUM).run_on(launcher)


def test_a_lost_device_takes_its_launch_with_it_and_no_other_scenario(
    on_device: Launcher, analysed: Callable[[str], AnalysedCase]
) -> None:
    text = "world_size: 2\ntensors: {x: [1]}\nsteps: [{broadcast: {tensor: x, src: 0}}]\n"
    trace = analysed(text).run_on(on_device)
    assert trace.outcome == "error"
    failure = trace.ranks[0].events[-1].failure
    assert failure is not None
    assert "illegal memory access" in failure.message
    before = on_device.processes()
    assert analysed(SUM).run_on(on_device).outcome == "completes"
    assert set(on_device.processes()) != set(before)
