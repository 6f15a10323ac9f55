"""Blocks of 1,000 steps of all_reduce in a scenario, against the same loop written by hand on Gloo.

Two ranks of a scenario and two that torchrun has started take a block in turn; a pair of blocks is
one sample and the median of the ratios counts. The scenario's loop is timed by its own trace (first
start to last end), with its checks, and its values kept after every step. Where the system allows
it (root), all of these processes are scheduled before everything else on the machine (SCHED_FIFO),
so that the figures are those of an idle one, however busy it is:

    python -m benchmarks.many_steps [pairs, 40 if left out]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

import runner
from benchmarks.measure import TORCHRUN, Row, show
from runner.execution import Launcher, LaunchOptions

STEPS = 1000
PAIRS = 40
BOUND = 1.10

YAML = f"""\
world_size: 2
tensors:
  x: "full(4, rank)"
steps:
  - all_reduce: {{tensor: x, op: max}}
  - for: {{i: "range({STEPS})"}}
    steps:
      - all_reduce: {{tensor: x, op: max}}
"""

#: takes a block for each line that it reads, and says how many seconds it took
SCRIPT = f"""\
import sys
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
asked = open(sys.argv[1], "rb", buffering=0) if dist.get_rank() == 0 else None
told = open(sys.argv[2], "wb", buffering=0) if dist.get_rank() == 0 else None
x = torch.full((4,), float(dist.get_rank()))
going = torch.ones(1)
while True:
    if asked is not None:
        going[0] = bool(asked.readline())
    dist.broadcast(going, src=0)
    if not going.item():
        break
    dist.all_reduce(x)
    began = time.perf_counter()
    for _ in range({STEPS}):
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
    if told is not None:
        told.write(f"{{time.perf_counter() - began}}\\n".encode())
dist.destroy_process_group()
"""


def descendants(pid: int) -> list[int]:
    """Return the processes that one has started, and that these have."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *descendants(child)]
    return found


def put_first(pids: list[int]) -> bool:
    """Schedule every thread of some processes before all others; return whether that is allowed."""
    try:
        for pid in pids:
            for task in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setscheduler(int(task.name), os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return False
    return True


def cpu_s(pids: list[int]) -> float:
    """Return the seconds of processor time that processes have taken, their system calls' too."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class ByHand:
    """The loop written by hand, in two processes of torchrun's; a context manager."""

    def __init__(self, folder: Path) -> None:
        """Start it."""
        script, asked, told = folder / "loop.py", folder / "asked", folder / "told"
        script.write_text(SCRIPT)
        os.mkfifo(asked)
        os.mkfifo(told)
        command = [*TORCHRUN, "--nproc-per-node", "2", "--standalone"]
        self.agent = subprocess.Popen(
            [*command, str(script), str(asked), str(told)], stderr=subprocess.DEVNULL
        )
        self._asked = asked.open("wb", buffering=0)
        self._told = told.open("rb")

    def __enter__(self) -> Self:
        """Take blocks from here on."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._asked.close()
        self.agent.wait()
        self._told.close()

    def block_s(self) -> float:
        """Return the seconds of one block, on rank 0."""
        self._asked.write(b"\n")
        return float(self._told.readline())


def main() -> None:
    """Measure pairs of blocks and print the median ratio."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    ours, theirs = [], []
    taken = {"ours": 0.0, "theirs": 0.0}
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "loop.yaml"
        path.write_text(YAML)
        (scenario,) = runner.load(path)
        plan = runner.plan(scenario)
        predicted = runner.simulate(plan)
        with Launcher(LaunchOptions(backend="gloo")) as launcher, ByHand(Path(name)) as by_hand:

            def block_s() -> float:
                observed = launcher.run(plan, predicted)
                if runner.judge(scenario, predicted, observed).status != "PASSED":
                    sys.exit("the scenario did not pass")
                events = observed.ranks[0].events[1:]
                return (events[-1].end_s or 0.0) - events[0].start_s

            block_s()
            by_hand.block_s()
            far = descendants(by_hand.agent.pid)
            near = list(launcher.processes())
            first = put_first([*near, *far])
            for number in range(pairs):
                for which in ("ours", "theirs") if number % 2 else ("theirs", "ours"):
                    pids = near if which == "ours" else far
                    before_s = cpu_s(pids)
                    if which == "ours":
                        ours.append(block_s())
                    else:
                        theirs.append(by_hand.block_s())
                    taken[which] += cpu_s(pids) - before_s
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    where = "before all other work" if first else "beside whatever else ran"
    show(
        [
            Row(
                what=f"a step in a scenario, {where}",
                value=f"{1e6 * statistics.median(ours) / STEPS:.0f} us",
            ),
            Row(what="a step by hand", value=f"{1e6 * statistics.median(theirs) / STEPS:.0f} us"),
            Row(what="ratio", value=f"{statistics.median(ratios):.2f}", bound=f"<= {BOUND:.2f}"),
            *(
                Row(
                    what=f"processor time of both ranks, a step {what}",
                    value=f"{1e6 * taken[which] / STEPS / pairs:.0f} us",
                )
                for which, what in (("ours", "in a scenario"), ("theirs", "by hand"))
            ),
        ]
    )


if __name__ == "__main__":
    main()
