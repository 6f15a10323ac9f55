"""How the analysis grows: ranks from 64 to 16,384. `python -m benchmarks.scale`.

Two whole commands, as a user gives them, with their peak of memory. Then, from the file to the
verdict in this process, the best of a few times: barriers on the world, messages around a ring
(each passes the same tensor on), the ring all_reduce of the corpus (without what it states of
NCCL), whose steps grow with the square of the ranks, and a crossed-group deadlock, in which
everyone is stuck.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from torch_scenarios.language import load
from torch_scenarios.limits import Limits
from torch_scenarios.model.groups import plan
from torch_scenarios.reference import simulate
from torch_scenarios.verdict import judge

LIMITS = Limits(max_ranks=1 << 20, max_items=1 << 22, max_steps=10**9, max_bytes=1 << 40)
TIMES = 3

BARRIERS = """\
parameters: {n: 2}
world_size: n
steps:
- for: {i: "range(256)"}
  steps: [{barrier: {}}]
"""

MESSAGES = """\
parameters: {n: 2}
world_size: n
tensors: {x: [1], y: [0]}
steps:
- for: {i: "range(85)"}
  steps:
  - isend: {tensor: x, dst: "(rank + 1) % n"}
    as: s
  - recv: {tensor: y, src: "(rank - 1) % n"}
  - wait: s
"""

CROSSED = """\
parameters: {n: 2}
world_size: n
groups: {low: "range(0, n // 2 + 1)", high: "range(n // 2, n)", all: "range(n)"}
tensors: {x: [1]}
steps:
- {ranks: "rank < n // 2", all_reduce: {tensor: x, group: low}}
- {all_reduce: {tensor: x, group: all}}
- {ranks: "rank == n // 2", all_reduce: {tensor: x, group: low}}
- {all_reduce: {tensor: x, group: high}}
expect: {outcome: deadlock, diagnosis: group_order}
"""

RING = Path(__file__).parents[1] / "scenarios" / "p2p" / "ring_all_reduce.yaml"


SIZES = (64, 256, 1024, 4096, 16384)
RINGS = (64, 128, 256, 512, 1024)
CURVES = (
    ("barriers", BARRIERS, SIZES),
    ("messages", MESSAGES, SIZES),
    ("ring all_reduce", RING.read_text(encoding="utf-8"), RINGS),
    ("crossed groups", CROSSED, SIZES),
)

COMMANDS = (("ring all_reduce", 1024), ("crossed groups", 16384))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One program at one size: seconds on the clock and of the processor, the best of a few."""

    steps: int
    wall_s: float
    cpu_s: float


def measured(path: Path, ranks: int) -> Measured:
    """Analyse a program a few times, after once to warm up."""
    taken = []
    steps = 0
    for _ in range(TIMES + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        (scenario,) = load(path, sets={"n": str(ranks)}, limits=LIMITS)
        trace = simulate(plan(scenario, limits=LIMITS), limits=LIMITS)
        verdict = judge(plan(scenario), trace, limits=LIMITS)
        taken.append((time.perf_counter() - wall, time.process_time() - cpu))
        assert verdict.status == "PASSED", verdict
        steps = sum(len(rank.events) for rank in trace.ranks)
    walls, cpus = zip(*taken[1:], strict=True)
    return Measured(steps=steps, wall_s=min(walls), cpu_s=min(cpus))


def commanded(path: Path, ranks: int) -> tuple[float, float, float]:
    """Run `scenario check`; returns seconds, seconds of the processor, and MiB at the peak."""
    command = [sys.executable, "-m", "torch_scenarios.cli", "check", "--no-cache", str(path)]
    command += ["--set", f"n={ranks}", "--max-ranks", str(ranks)]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    """Print a row a program and size, and one a command."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name, text, _ in CURVES:
            paths[name] = Path(folder) / f"{name.replace(' ', '_')}.yaml"
            paths[name].write_text(text, encoding="utf-8")
        print("| `scenario check` of | ranks | seconds | CPU seconds | peak |")
        print("|---|---:|---:|---:|---:|")
        for name, ranks in COMMANDS:
            wall_s, cpu_s, mib = min(commanded(paths[name], ranks) for _ in range(TIMES))
            print(f"| {name} | {ranks:,} | {wall_s:.2f} | {cpu_s:.2f} | {mib:,.0f} MiB |")
        print("\n| program | ranks | rank-steps | seconds | CPU seconds | rank-steps a second |")
        print("|---|---:|---:|---:|---:|---:|")
        for name, _, sizes in CURVES:
            for ranks in sizes:
                found = measured(paths[name], ranks)
                rate = found.steps / found.cpu_s
                print(
                    f"| {name} | {ranks:,} | {found.steps:,} | {found.wall_s:.3f} "
                    f"| {found.cpu_s:.3f} | {rate:,.0f} |"
                )


if __name__ == "__main__":
    main()
