"""How far `scenario bench` is from a loop by hand that times the same call in the same way.

An all_reduce on two ranks on Gloo, in turns: a block of repetitions by `scenario bench`, and one by
a script that calls torch and looks at its clock before and after. Of each the slower rank, as
`bench` has it. The processes of both begin anew several times; each start has a ratio of the two,
and their interval, by resampling the starts, says how much of it is noise.

Use: python -m benchmarks.by_hand [--starts 10] [--turns 8] [--iters 20] [--bytes 1048576]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from torch_scenarios.execution import Launcher
from torch_scenarios.execution.backends import LaunchOptions
from torch_scenarios.language.document import load
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.pipeline.bench import measure, warmups
from torch_scenarios.pipeline.results import Analysis

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


#: until what a block leaves behind is done: an old world is dropped in the background
SETTLED_S = 0.2
#: what the blocks of one kind come to, in words
STATISTICS = {"median": 50, "fastest quarter": 25, "fastest tenth": 10}


def started(
    analysis: Analysis, folder: Path, turns: int, iterations: int, items: int
) -> dict[str, np.ndarray]:
    """Return the times of so many turns, of processes that begin now: `[repetitions]` of a kind.

    Where its memory lies makes a process quicker or slower for as long as it lives, by several
    hundredths: more turns of the same processes do not tell.
    """
    blocks: dict[str, list[np.ndarray]] = {"bench": [], "by hand": []}
    with Launcher(LaunchOptions()) as launcher:
        script = Script(folder, items)
        warmup = warmups(measure(analysis, launcher, warmup=0, iterations=5))
        for turn in range(turns):
            for kind in ("bench", "by hand") if turn % 2 == 0 else ("by hand", "bench"):
                time.sleep(SETTLED_S)
                times = (
                    measure(analysis, launcher, warmup=warmup, iterations=iterations)
                    if kind == "bench"
                    else script.turn(warmup, iterations)
                )
                blocks[kind].append(times.max(axis=0))
        script.end()
    return {kind: np.concatenate(each) for kind, each in blocks.items()}


def main() -> None:
    """Measure in turns, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--iters", type=int, default=20)
    parser.add_argument("--bytes", type=int, default=2**20)
    given = parser.parse_args()
    items = given.bytes // 4
    found = []
    with TemporaryDirectory() as name:
        file = Path(name) / "program.yaml"
        file.write_text(PROGRAM.format(items=items), encoding="utf-8")
        (case,) = load(file)
        analysis = analyse(case)
        for number in range(given.starts):
            folder = Path(name) / str(number)
            folder.mkdir()
            found.append(started(analysis, folder, given.turns, given.iters, items))
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {given.bytes} bytes")
    for kind in ("bench", "by hand"):
        whole = np.concatenate([each[kind] for each in found])
        print(f"{kind}: median {np.median(whole):.0f} us, minimum {whole.min():.0f} us")
    resampled = np.random.default_rng(0).integers(0, len(found), (4000, len(found)))
    for label, percent in STATISTICS.items():
        both = np.array(
            [
                [np.percentile(each[kind], percent) for kind in ("bench", "by hand")]
                for each in found
            ]
        )
        ratios = np.log(both[:, 0] / both[:, 1])
        low, high = np.exp(np.percentile(ratios[resampled].mean(axis=1), (2.5, 97.5)))
        one, most = np.exp((ratios.min(), ratios.max()))
        print(
            f"bench / by hand, {label}: {np.exp(ratios.mean()):.3f}, 95 % interval {low:.3f} to "
            f"{high:.3f}; single starts {one:.3f} to {most:.3f}"
        )


if __name__ == "__main__":
    main()
