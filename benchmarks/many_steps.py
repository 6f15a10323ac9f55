"""Blocks of 1,000 steps of all_reduce in a scenario, against the same loop written by hand on Gloo.

Two ranks of a scenario, two that torchrun has started, and two that a process has forked which had
torch already take a block in turn; the median of the blocks counts, against the quicker of the two
loops by hand. The scenario's loop is timed by its own trace (first start to last end), with its
checks, and its values kept after every step. Where the system allows it (root), all of these
processes are scheduled before everything else on the machine (SCHED_FIFO), so that the figures are
those of an idle one, however busy it is:

    python -m benchmarks.many_steps [turns, 40 if left out]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

import torch_scenarios
from benchmarks.measure import TORCHRUN, Row, show
from torch_scenarios.execution import Launcher, LaunchOptions

STEPS = 1000
TURNS = 40
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

#: forks two ranks that run a script, as the workers of `scenario run` are forked
FORKED = """\
import os
import runpy
import socket
import sys
import torch.distributed

with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
del sys.argv[0]
ranks = []
for rank in range(2):
    ranks.append(os.fork())
    if not ranks[-1]:
        os.environ["RANK"] = str(rank)
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        finally:
            os._exit(0)
for rank in ranks:
    os.waitpid(rank, 0)
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
    """The loop written by hand, in two processes that a command starts; a context manager."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        """Start it; `command` takes a script and its arguments. `folder` is its own."""
        folder.mkdir()
        script, asked, told = folder / "loop.py", folder / "asked", folder / "told"
        script.write_text(SCRIPT)
        os.mkfifo(asked)
        os.mkfifo(told)
        self.started = subprocess.Popen(
            [*command, str(script), str(asked), str(told)],
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        self._asked = asked.open("wb", buffering=0)
        self._told = told.open("rb")

    def __enter__(self) -> Self:
        """Take blocks from here on."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._asked.close()
        self.started.wait()
        self._told.close()

    def block_s(self) -> float:
        """Return the seconds of one block, on rank 0."""
        self._asked.write(b"\n")
        return float(self._told.readline())


def main() -> None:
    """Measure blocks in turns and print the medians, and the ratio to the quicker loop by hand."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else TURNS
    with tempfile.TemporaryDirectory() as name:
        path, forked = Path(name) / "loop.yaml", Path(name) / "forked.py"
        path.write_text(YAML)
        forked.write_text(FORKED)
        (scenario,) = torch_scenarios.load(path)
        plan = torch_scenarios.plan(scenario)
        predicted = torch_scenarios.simulate(plan)
        torchrun = [*TORCHRUN, "--nproc-per-node", "2", "--standalone"]
        with (
            Launcher(LaunchOptions(backend="gloo")) as launcher,
            ByHand(Path(name) / "torchrun", torchrun) as under_torchrun,
            ByHand(Path(name) / "forked", [sys.executable, str(forked)]) as in_forked,
        ):

            def block_s() -> float:
                observed = launcher.run(plan, predicted)
                if torch_scenarios.judge(scenario, predicted, observed).status != "PASSED":
                    sys.exit("the scenario did not pass")
                events = observed.ranks[0].events[1:]
                return (events[-1].end_s or 0.0) - events[0].start_s

            blocks = {
                "in a scenario": block_s,
                "by hand under torchrun": under_torchrun.block_s,
                "by hand in forked processes": in_forked.block_s,
            }
            for block in blocks.values():
                block()
            host, *workers = launcher.processes()
            ranks = {
                "in a scenario": workers,
                "by hand under torchrun": descendants(under_torchrun.started.pid),
                "by hand in forked processes": descendants(in_forked.started.pid),
            }
            first = put_first([host, *(pid for pids in ranks.values() for pid in pids)])
            took: dict[str, list[float]] = {what: [] for what in blocks}
            cpu = dict.fromkeys(blocks, 0.0)
            of_host = cpu_s([host])
            names = list(blocks)
            for number in range(turns):
                first_name = number % len(names)
                for what in names[first_name:] + names[:first_name]:
                    before_s = cpu_s(ranks[what])
                    took[what].append(blocks[what]())
                    cpu[what] += cpu_s(ranks[what]) - before_s
            of_host = cpu_s([host]) - of_host
    where = "before all other work" if first else "beside whatever else ran"
    medians = {what: statistics.median(seconds) for what, seconds in took.items()}
    ours, *by_hand = medians.values()
    show(
        [
            *(
                Row(what=f"a step {what}, {where}", value=f"{1e6 * median / STEPS:.0f} us")
                for what, median in medians.items()
            ),
            Row(
                what="the first over the quicker by hand",
                value=f"{ours / min(by_hand):.2f}",
                bound=f"<= {BOUND:.2f}",
            ),
            *(
                Row(
                    what=f"processor time of both ranks, a step {what}",
                    value=f"{1e6 * seconds / STEPS / turns:.0f} us",
                )
                for what, seconds in cpu.items()
            ),
            Row(
                what="processor time of the process that holds them, a step",
                value=f"{1e6 * of_host / STEPS / turns:.0f} us",
            ),
        ]
    )


if __name__ == "__main__":
    main()
