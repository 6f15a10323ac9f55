"""A run over two nodes against one on one machine, side by side: the start, and a warm scenario.

The nodes are two hosts of two ranks that `--netns 2` simulates; one machine has the four ranks. A
round runs all four commands, one after the other, so that a load of the machine falls on each.

python -m benchmarks.nodes --rounds 10
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import SCENARIO, Row, show
from torch_scenarios.execution import netns

SUM = "world_size: 4\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}, expect: {x: [4]}}]\n"
#: cases of the run whose last ones are warm, and how many are left out before them
CASES, COLD = 12, 2
HOW = {"one node": [], "two nodes": ["--netns", "2", "--nproc-per-node", "2"]}
#: `PASSED  path::case  8 ms`
TOOK = re.compile(r"^PASSED .*\s([\d.]+) (ms|s)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One run: seconds of the wall and of processors, and of each of its cases."""

    wall_s: float
    processor_s: float
    cases_s: tuple[float, ...]


def took(how: list[str], folder: Path) -> Round:
    """Run a folder once."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(
        [*SCENARIO, "run", "-v", "--no-cache", *how, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    wall_s = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = (float(n) / (1000 if unit == "ms" else 1) for n, unit in TOOK.findall(done.stdout))
    return Round(wall_s=wall_s, processor_s=used_s, cases_s=tuple(found))


def main() -> None:
    """Measure rounds, and print the medians with their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    lack = netns.lack()
    if lack is not None:
        sys.exit(f"no hosts can be simulated here: {lack}")
    starts: dict[str, list[Round]] = {how: [] for how in HOW}
    warm: dict[str, list[float]] = {how: [] for how in HOW}
    with tempfile.TemporaryDirectory() as place:
        one, many = Path(place) / "one", Path(place) / "many"
        for folder, count in ((one, 1), (many, CASES)):
            folder.mkdir()
            for number in range(count):
                (folder / f"sum_{number:02}.yaml").write_text(SUM, encoding="utf-8")
        for _ in range(rounds):
            for how, options in HOW.items():
                starts[how].append(took(options, one))
                warm[how] += took(options, many).cases_s[COLD:]
    wall = {how: statistics.median(each.wall_s for each in starts[how]) for how in HOW}
    used = {how: statistics.median(each.processor_s for each in starts[how]) for how in HOW}
    case = {how: 1000 * statistics.median(warm[how]) for how in HOW}
    show(
        [
            _row("a run of one case, whole", wall, "s", "<= 1.5"),
            _row("its time of processors", used, "s", ""),
            _row(f"a warm case ({len(warm['one node'])} of each)", case, "ms", "<= 1.5"),
            Row(what="load of the machine", value=" ".join(f"{n:.1f}" for n in os.getloadavg())),
        ]
    )


def _row(what: str, found: dict[str, float], unit: str, bound: str) -> Row:
    one, two = found["one node"], found["two nodes"]
    value = f"{one:.2f} {unit}, over two nodes {two:.2f} {unit}: {two / one:.2f}"
    return Row(what=what, value=value, bound=bound)


if __name__ == "__main__":
    main()
