"""What a recorder costs a call: CPU microseconds of an all_reduce, plain and recorded, in turns.

`python -m benchmarks.record` forks two processes of a world of one on Gloo, one of them with the
recorder of :mod:`runner.record.recorder`. They take turns, a block of calls each, so that a load of
the machine meets both; what is told is the CPU time of the least loaded block of each.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from statistics import median
from typing import Any

#: calls of a block, and blocks
CALLS, BLOCKS = 1000, 15


def main() -> int:
    """Print the cost of a call as JSON."""
    import torch
    import torch.distributed

    torch.set_num_threads(1)
    found: dict[str, list[float]] = {"plain": [], "recorded": []}
    with tempfile.TemporaryDirectory() as folder:
        workers = {name: _started(name, folder) for name in found}
        for _ in range(BLOCKS):
            for name, (asks, answers, _) in workers.items():
                os.write(asks, b"1")
                found[name].append(float(os.read(answers, 64)))
        for asks, _, pid in workers.values():
            os.write(asks, b"0")
            os.waitpid(pid, 0)
    told = {name: {"best": min(each), "median": median(each)} for name, each in found.items()}
    extra = told["recorded"]["best"] - told["plain"]["best"]
    json.dump({"cpu_us": told, "extra_us": extra, "torch": torch.__version__}, sys.stdout, indent=2)
    print()
    return 0


def _started(name: str, folder: str) -> tuple[int, int, int]:
    """Fork a process; returns where it is asked, where it answers, and its id."""
    asked, asks = os.pipe()
    answers, answered = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _blocks(name, folder, asked, answered)
        finally:
            os._exit(0)
    return asks, answers, pid


def _blocks(name: str, folder: str, asked: int, answered: int) -> None:
    import torch
    import torch.distributed

    dist: Any = torch.distributed
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if name == "recorded":
        from runner.record.recorder import Recorder

        Recorder(folder, {"rank": 0, "world_size": 1})
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    tensor = torch.ones(4)
    while os.read(asked, 1) == b"1":
        before = _cpu_s()
        for _ in range(CALLS):
            dist.all_reduce(tensor)
        os.write(answered, f"{(_cpu_s() - before) / CALLS * 1e6}\n".encode())


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    raise SystemExit(main())
