"""How far `scenario bench` is from a loop by hand that times the same call in the same way.

An all_reduce on two ranks on Gloo, in turns: a block of repetitions by `scenario bench`, and one by
a script that calls torch and looks at its clock before and after. Of each the median of the slower
rank, as `bench` has it, and the minimum.

Use: python -m benchmarks.by_hand [--turns 100] [--iters 20] [--bytes 1048576]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from runner.execution import Launcher
from runner.execution.backends import LaunchOptions
from runner.language.document import load
from runner.pipeline.attempts import analyse
from runner.pipeline.bench import measured, warmups

PROGRAM = """
world_size: 2
tensors: {{x: "full({items}, rank)"}}
steps:
  - all_reduce: {{tensor: x}}
"""
SCRIPT = """
import json, sys, time
import torch, torch.distributed as dist

rank, items, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
torch.set_num_threads(1)
for line in sys.stdin:
    x = torch.full((items,), float(rank))
    times = []
    dist.barrier()
    for _ in range(int(line)):
        begun = time.perf_counter()
        dist.all_reduce(x)
        times.append((time.perf_counter() - begun) * 1e6)
    print(json.dumps(times), flush=True)
dist.destroy_process_group()
"""


class Script:
    """The two processes of the loop by hand."""

    def __init__(self, folder: Path, items: int) -> None:
        """Start them; they wait for turns."""
        file = folder / "loop.py"
        file.write_text(SCRIPT, encoding="utf-8")
        store = str(folder / "store")
        self.ranks = [
            subprocess.Popen(
                [sys.executable, str(file), str(rank), str(items), store],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in (0, 1)
        ]

    def turn(self, warmup: int, iterations: int) -> np.ndarray:
        """Return the times of a block, `[ranks, iterations]`, in microseconds."""
        for rank in self.ranks:
            assert rank.stdin is not None
            rank.stdin.write(f"{warmup + iterations}\n")
            rank.stdin.flush()
        found = []
        for rank in self.ranks:
            assert rank.stdout is not None
            found.append(json.loads(rank.stdout.readline())[warmup:])
        return np.array(found)

    def end(self) -> None:
        """Let them end."""
        for rank in self.ranks:
            rank.communicate(timeout=30)


def main() -> None:
    """Measure in turns, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--iters", type=int, default=20)
    parser.add_argument("--bytes", type=int, default=2**20)
    given = parser.parse_args()
    items = given.bytes // 4
    with TemporaryDirectory() as name, Launcher(LaunchOptions()) as launcher:
        file = Path(name) / "program.yaml"
        file.write_text(PROGRAM.format(items=items), encoding="utf-8")
        (case,) = load(file)
        analysis = analyse(case)
        script = Script(Path(name), items)
        warmup = warmups(measured(analysis, launcher, warmup=0, iterations=5))
        blocks: dict[str, list[np.ndarray]] = {"bench": [], "by hand": []}
        for turn in range(given.turns):
            for kind in ("bench", "by hand") if turn % 2 == 0 else ("by hand", "bench"):
                times = (
                    measured(analysis, launcher, warmup=warmup, iterations=given.iters)
                    if kind == "bench"
                    else script.turn(warmup, given.iters)
                )
                blocks[kind].append(times.max(axis=0))
        script.end()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {given.bytes} bytes")
    medians = {kind: [float(np.median(block)) for block in each] for kind, each in blocks.items()}
    for kind, each in blocks.items():
        whole = np.concatenate(each)
        print(f"{kind}: median {np.median(whole):.0f} us, minimum {whole.min():.0f} us")
    ratios = np.array(medians["bench"]) / np.array(medians["by hand"])
    low, middle, high = np.percentile(ratios, (25, 50, 75))
    print(
        f"bench / by hand, blocks of one turn: {middle:.3f}, half of them {low:.3f} to {high:.3f}"
    )
    least = {kind: np.percentile(np.concatenate(each), 10) for kind, each in blocks.items()}
    print(f"the fastest tenth: {least['bench'] / least['by hand']:.3f}")


if __name__ == "__main__":
    main()
