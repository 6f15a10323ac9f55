"""Whether `scenario bench --compare` sees a slowdown that was planted, and none that was not.

A program on two ranks is measured as it is, and with a sleep of 20 % of its median on one rank, in
blocks that take turns; so is the program against itself. The verdicts of so many comparisons are
counted, as they are on a quiet machine, and as `bench` gives them on this one, which may be noisy.

Use: python -m benchmarks.slowdown [--times 20] [--iters 100] [--bytes 1048576]
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from torch_scenarios.execution import Launcher
from torch_scenarios.execution.backends import LaunchOptions
from torch_scenarios.language.document import load
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.pipeline.bench import BLOCKS, compare, measure, noise, row_of
from torch_scenarios.pipeline.results import Analysis

PROGRAM = """
world_size: 2
tensors: {{x: "full({items}, rank)"}}
steps:
  - sleep: {busy}us
  - ranks: 1
    sleep: {planted}us
  - all_reduce: {{tensor: x}}
"""
PLANTED = 0.2


def program(folder: Path, items: int, busy: float, planted: float) -> Analysis:
    """Return the program, with a sleep on rank 1 of so many microseconds."""
    file = folder / "program.yaml"
    text = PROGRAM.format(items=items, busy=f"{busy:.0f}", planted=f"{planted:.0f}")
    file.write_text(text, encoding="utf-8")
    (case,) = load(file)
    return analyse(case)


def main() -> None:
    """Measure, compare, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--iters", type=int, default=100)
    parser.add_argument("--bytes", type=int, default=2**20)
    parser.add_argument(
        "--busy", type=float, default=0.0, help="microseconds that each rank sleeps"
    )
    given = parser.parse_args()
    each = given.iters // BLOCKS
    with TemporaryDirectory() as name, Launcher(LaunchOptions()) as launcher:
        folder, items = Path(name), given.bytes // 4
        plain = program(folder, items, given.busy, 0)
        first = measure(plain, launcher, warmup=5, iterations=given.iters).max(axis=0)
        slow = program(folder, items, given.busy, PLANTED * float(np.median(first)))
        spread = np.percentile(first, (5, 50, 95)).round(0).tolist()
        print(f"one repetition, 5 %, median, 95 %: {spread} us; load {os.getloadavg()[0]:.1f}")
        for label, other in (("planted 20 %", slow), ("equal", plain)):
            quiet: Counter[str] = Counter()
            real: Counter[str] = Counter()
            ratios = []
            for _ in range(given.times):
                load_before = os.getloadavg()[0]
                blocks: dict[bool, list[np.ndarray]] = {False: [], True: []}
                for turn in range(BLOCKS):
                    for new in (False, True) if turn % 2 == 0 else (True, False):
                        asked = other if new else plain
                        blocks[new].append(measure(asked, launcher, warmup=5, iterations=each))
                old, now = (
                    row_of(plain, blocks[new], given.bytes, None).json() for new in (False, True)
                )
                medians = old["block_medians_us"], now["block_medians_us"]
                notes = noise(2, "gloo", [old, now], load_before)
                quiet[compare(*medians, 0.1, noisy=False).status] += 1
                real[compare(*medians, 0.1, noisy=bool(notes)).status] += 1
                ratios.append(now["median_us"] / old["median_us"])
            print(
                f"{label}: ratios {min(ratios):.3f} to {max(ratios):.3f}, median "
                f"{np.median(ratios):.3f}; without a note {dict(quiet)}, here {dict(real)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
