"""What is promised of speed: absolute on a GPU, exercised anywhere."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch_scenarios
from torch_scenarios.execution import Launcher, LaunchOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch_scenarios.model.trace import Trace

WARM, LONG = 20, 5000
SMALL = """\
world_size: 2
tensors: {x: "full(4, rank)"}
steps:
  - all_reduce: {tensor: x}
    expect: {x: "full(4, 1)"}
"""
STUCK = """\
world_size: 2
timeout: 60s
tensors: {x: "full(4, rank)"}
steps:
  - all_reduce: {tensor: x}
  - {ranks: 0, all_reduce: {tensor: x}}
expect: {outcome: deadlock, diagnosis: missing_participant}
"""
LOOP = f"""\
world_size: 2
timeout: 300s
tensors: {{x: "full(4, rank)"}}
steps:
  - for: {{i: "range({LONG})"}}
    steps: [{{all_reduce: {{tensor: x, op: max}}}}]
"""
#: the same loop by hand: an event behind each step, a copy of its result, one look at the end
BY_HAND = f"""\
import json, os, time
import torch
import torch.distributed as dist

backend, shared = os.environ["BACKEND"], os.environ.get("SHARED")
local, rank = int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"])
cuda = "nccl" in backend
device = torch.device("cuda", local % torch.cuda.device_count()) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
if shared:
    os.environ.update(json.loads(shared)[rank])
began = time.perf_counter()
dist.init_process_group(backend, **({{"device_id": device}} if cuda else {{}}))
world_s = time.perf_counter() - began
x = torch.full((4,), float(rank), device=device)
dist.all_reduce(x)
kept, events = [], []
began = time.perf_counter()
for _ in range({LONG}):
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    kept.append(x.clone())
    if cuda:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        events.append(event)
while events and not events[-1].query():
    time.sleep(0.0005)
took = time.perf_counter() - began
if rank == 0:
    print(json.dumps({{"took": took, "world_s": world_s}}))
os._exit(0)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One figure; `bound` is what was promised on a GPU of each rank's own, if anything was."""

    what: str
    value: str
    bound: str = ""


def measured(backend: str, *, share_gpu: bool, say: Callable[[str], None]) -> list[Timing]:
    """Measure, and say each figure as it comes."""
    found: list[Timing] = []

    def note(what: str, value: str, bound: str = "") -> None:
        found.append(Timing(what=what, value=value, bound=bound))
        say(f"  {what}: {value}{f' (promised: {bound})' if bound else ''}")

    options = LaunchOptions(backend=backend, share_gpu=share_gpu)
    with tempfile.TemporaryDirectory() as folder, Launcher(options) as launcher:
        launcher.reserve(2)
        path = Path(folder) / "timing.yaml"
        whole_s, world_s = _warm(launcher, path)
        note("a warm two-rank scenario, its world apart", _ms(whole_s - world_s), "<= 50 ms")
        note("its world (init_process_group)", _ms(world_s))
        trace, took_s, _ = _run(launcher, path, STUCK)
        note("the deadlock verdict, from the order on", _ms(trace.duration_s), "<= 1 s")
        note(
            "the scenario after a hang, in the same launch or a new one",
            _ms(_again(launcher, path)),
        )
        trace, took_s, predicted_s = _run(launcher, path, LOOP)
        ours_s = _span(trace)
        note(f"{LONG} all_reduce in a scenario", f"{1e6 * ours_s / LONG:.1f} us a step")
        note("its analysis and its account", f"{predicted_s:.2f} s, {took_s - ours_s:.2f} s")
        by_hand = _by_hand(backend, share_gpu=share_gpu)
        if by_hand is None:
            note(f"{LONG} all_reduce by hand", "the loop by hand did not run")
            return found
        note(f"{LONG} all_reduce by hand", f"{1e6 * by_hand['took'] / LONG:.1f} us a step")
        note("the ratio of both", f"{ours_s / by_hand['took']:.2f}", "<= 1.10")
    return found


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"


def _run(launcher: Launcher, path: Path, text: str) -> tuple[Trace, float, float]:
    """Return the observed trace, how long the run took and how long the analysis did."""
    path.write_text(text, encoding="utf-8")
    began = time.perf_counter()
    (scenario,) = torch_scenarios.load(path)
    planned = torch_scenarios.plan(scenario)
    predicted = torch_scenarios.simulate(planned)
    analysed = time.perf_counter()
    observed = launcher.run(planned, predicted)
    took_s = time.perf_counter() - analysed
    verdict = torch_scenarios.judge(scenario, predicted, observed)
    if verdict.status != "PASSED":
        message = f"a timed scenario {verdict.status}: {verdict.reason or verdict.findings}"
        raise RuntimeError(message)
    return observed, took_s, analysed - began


def _warm(launcher: Launcher, path: Path) -> tuple[float, float]:
    """Return the median seconds of one more scenario, judged, and of its world's creation."""
    whole, worlds = [], []
    for number in range(WARM + 3):
        began = time.perf_counter()
        trace, _, _ = _run(launcher, path, SMALL)
        if number >= 3:
            whole.append(time.perf_counter() - began)
            worlds.append(float(trace.environment.get("world_s", 0.0)))
    return statistics.median(whole), statistics.median(worlds)


def _again(launcher: Launcher, path: Path) -> float:
    began = time.perf_counter()
    _run(launcher, path, SMALL)
    return time.perf_counter() - began


def _span(trace: Trace) -> float:
    """Return the seconds from the first call to the last completion, on rank 0."""
    events = trace.ranks[0].events
    last = events[-1]
    return max(last.end_s or 0.0, last.complete_s or 0.0) - events[0].start_s


def _by_hand(backend: str, *, share_gpu: bool) -> dict[str, float] | None:
    """Return what the same loop took under torchrun, written by hand; None where it failed."""
    environment = {**os.environ, "BACKEND": backend, "OMP_NUM_THREADS": "1"}
    shared = _sharing() if share_gpu else None
    if shared is not None:
        environment["SHARED"] = json.dumps(shared)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "loop.py"
        script.write_text(BY_HAND, encoding="utf-8")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
                *("--nproc-per-node", "2", str(script)),
            ],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        sys.stderr.write(done.stderr[-2000:])
        return None
    result: dict[str, float] = json.loads(lines[-1])
    return result


def _sharing() -> list[dict[str, str]] | None:
    """Return the environment of two ranks that share the GPUs; None where they need not."""
    import torch

    from torch_scenarios.execution import backends as nccl

    module: Any = torch
    found = nccl.find_sharing(nccl.version_of(module), 2, module.cuda.device_count())
    if isinstance(found, nccl.Sharing):
        return [found.environment(rank) for rank in range(2)]
    return None
