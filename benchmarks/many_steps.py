"""5,000 steps of all_reduce in a scenario, against the same loop written by hand on Gloo.

Both loops run on two ranks; a pair of runs is one sample and the median of the ratios counts. The
scenario's loop is timed by its own trace (first start to last end), with its checks, and its
values kept after every step:

    python -m benchmarks.many_steps [pairs, 5 if left out]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import runner
from benchmarks.measure import TORCHRUN, Row, show
from runner.execution import Launcher, LaunchOptions

STEPS = 5000

YAML = f"""\
world_size: 2
tensors:
  x: "full(4, rank)"
steps:
  - for: {{i: "range({STEPS})"}}
    steps:
      - all_reduce: {{tensor: x, op: max}}
"""

SCRIPT = f"""\
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.full((4,), float(dist.get_rank()))
dist.all_reduce(x)
began = time.perf_counter()
for _ in range({STEPS}):
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
took = time.perf_counter() - began
if dist.get_rank() == 0:
    print("took", took)
dist.destroy_process_group()
"""


def by_hand_s(script: Path) -> float:
    """Return the seconds of the loop written by hand, on rank 0."""
    done = subprocess.run(
        [*TORCHRUN, "--nproc-per-node", "2", "--standalone", str(script)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    """Measure pairs and print the median ratio."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as name:
        path, script = Path(name) / "loop.yaml", Path(name) / "loop.py"
        path.write_text(YAML)
        script.write_text(SCRIPT)
        (scenario,) = runner.load(path)
        plan = runner.plan(scenario)
        predicted = runner.simulate(plan)
        with Launcher(LaunchOptions(backend="gloo")) as launcher:
            for _ in range(pairs):
                observed = launcher.run(plan, predicted)
                if runner.judge(scenario, predicted, observed).status != "PASSED":
                    sys.exit("the scenario did not pass")
                events = observed.ranks[0].events
                ours.append((events[-1].end_s or 0.0) - events[0].start_s)
                theirs.append(by_hand_s(script))
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    show(
        [
            Row(
                what="a step in a scenario", value=f"{1e6 * statistics.median(ours) / STEPS:.0f} us"
            ),
            Row(what="a step by hand", value=f"{1e6 * statistics.median(theirs) / STEPS:.0f} us"),
            Row(what="ratio", value=f"{statistics.median(ratios):.2f}", bound="<= 1.15"),
        ]
    )


if __name__ == "__main__":
    main()
