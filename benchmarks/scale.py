"""How the analysis grows: ranks from 64 to 16,384, without a process. `python -m benchmarks.scale`.

Three programs: barriers on the world (no values), a crossed-group deadlock (everyone is stuck), and
a ring of sends and receives, each rank passing its neighbour's chunk on.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

from runner import judge, plan
from runner.language import load
from runner.language.limits import Limits
from runner.reference import simulate

LIMITS = Limits(max_ranks=1 << 20, max_items=1 << 22, max_steps=10**9, max_bytes=1 << 40)

BARRIERS = """\
parameters: {n: 2}
world_size: n
steps:
- for: {i: "range(4)"}
  steps: [{barrier: {}}]
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

RING = """\
parameters: {n: 2}
world_size: n
tensors: {x: "full(n, rank)", y: [0]}
steps:
- for: {i: "range(world_size - 1)"}
  steps:
  - isend: {tensor: "x[(rank - i) % n : (rank - i) % n + 1]", dst: "(rank + 1) % n"}
    as: s
  - recv: {tensor: y, src: "(rank - 1) % n"}
  - wait: s
"""

CURVES = (
    ("barriers", BARRIERS, (64, 256, 1024, 4096, 16384)),
    ("crossed groups", CROSSED, (64, 256, 1024, 4096, 16384)),
    ("ring of messages", RING, (16, 32, 64, 128)),
)


def measured(text: str, ranks: int, folder: Path) -> tuple[float, int]:
    """Return the seconds from the file to the verdict, and the steps of all ranks."""
    path = folder / "program.yaml"
    path.write_text(text, encoding="utf-8")
    began = time.perf_counter()
    (scenario,) = load(path, sets={"n": str(ranks)}, limits=LIMITS)
    trace = simulate(plan(scenario, limits=LIMITS), limits=LIMITS)
    verdict = judge(scenario, trace)
    seconds = time.perf_counter() - began
    assert verdict.status == "PASSED", verdict.findings  # noqa: S101 -- else nothing was measured
    return seconds, sum(len(rank.events) for rank in trace.ranks)


def main() -> None:
    """Print a row a program and size."""
    print("| program | ranks | rank-steps | seconds | rank-steps a second |")
    print("|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for name, text, sizes in CURVES:
            for ranks in sizes:
                seconds, steps = measured(text, ranks, Path(folder))
                rate = steps / seconds
                print(f"| {name} | {ranks:,} | {steps:,} | {seconds:.2f} | {rate:,.0f} |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npeak of the process: {peak:,.0f} MiB")


if __name__ == "__main__":
    main()
