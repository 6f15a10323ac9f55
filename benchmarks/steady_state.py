"""What one more scenario costs in living workers, and one more test in torch's own harness.

The runner's figure is the median over 40 scenarios after the first, a fresh world for each. The
harness is `torch.testing._internal.common_distributed.MultiProcContinuousTest`, ten tests of an
all_reduce each:

    python -m benchmarks.steady_state
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch_scenarios
from benchmarks.measure import Row, show
from torch_scenarios.execution import Launcher, LaunchOptions

TIMES = 40

YAML = """\
world_size: {world}
tensors:
  x: "full(4, rank)"
steps:
  - all_reduce: {{tensor: x}}
    expect:
      x: "full(4, {total})"
"""

HARNESS = """\
import sys
import types
import unittest

# torch's tests derive from expecttest's TestCase; nothing of what it adds is used here
stub = types.ModuleType("expecttest")
stub.TestCase = unittest.TestCase
stub.assert_expected_inline = None
sys.modules.setdefault("expecttest", stub)

import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import MultiProcContinuousTest
from torch.testing._internal.common_utils import run_tests


class Ten(MultiProcContinuousTest):
    world_size = {world}

    @classmethod
    def backend_str(cls):
        return "gloo"


def _test(self):
    x = torch.full((4,), float(self.rank))
    dist.all_reduce(x)
    assert torch.equal(x, torch.full((4,), float({total})))


for number in range(10):
    setattr(Ten, f"test_{{number}}", _test)

if __name__ == "__main__":
    run_tests()
"""


def ours_s(world: int) -> float:
    """Return the median seconds for one more scenario of `world` ranks, judged."""
    took = []
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "one.yaml"
        path.write_text(YAML.format(world=world, total=sum(range(world))))
        with Launcher(LaunchOptions(backend="gloo")) as launcher:
            for _ in range(TIMES + 5):
                began = time.perf_counter()
                (scenario,) = torch_scenarios.load(path)
                plan = torch_scenarios.plan(scenario)
                predicted = torch_scenarios.simulate(plan)
                observed = launcher.run(plan, predicted)
                verdict = torch_scenarios.judge(scenario, predicted, observed)
                took.append(time.perf_counter() - began)
                if verdict.status != "PASSED":
                    sys.exit(f"the scenario {verdict.status}: {verdict}")
    return statistics.median(took[5:])


def harness_s(world: int) -> float:
    """Return the seconds per test of torch's own harness, ten tests, its start included."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "ten.py"
        path.write_text(HARNESS.format(world=world, total=sum(range(world))))
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, str(path)], cwd=name, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        return (time.perf_counter() - began) / 10


def main() -> None:
    """Measure two and eight ranks, and the harness beside the first."""
    two, eight, harness = ours_s(2), ours_s(8), harness_s(2)
    show(
        [
            Row(what="one more two-rank scenario", value=f"{1000 * two:.1f} ms", bound="<= 12 ms"),
            Row(
                what="one more eight-rank scenario",
                value=f"{1000 * eight:.1f} ms",
                bound="<= 60 ms",
            ),
            Row(what="MultiProcContinuousTest, one of ten tests", value=f"{1000 * harness:.0f} ms"),
            Row(what="the first over the last", value=f"{two / harness:.2f}", bound="<= 0.5"),
        ]
    )


if __name__ == "__main__":
    main()
