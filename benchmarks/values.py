"""What the witness of values costs a training: CPU of steps, plain and with `--values`, in turns.

`python -m benchmarks.values` forks two worlds of two ranks on Gloo that train one model by DDP (10
million parameters in three layers, a batch of 256 rows), one of them as `scenario record --values`
does it. They take turns, a step each, so that a load of the machine meets both. What is reported is
the CPU time of a rank for a step, of all threads, and the ratio: its median and that of the leasts.
The first steps, whose gradients and weights are kept, are apart.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from statistics import median
from typing import Any

#: turns, steps before them whose values are kept, width of a layer, layers, rows
TURNS, KEPT, WIDTH, LAYERS, ROWS = 9, 3, 1826, 3, 256
NAMES = ("plain", "values")


def main() -> int:
    """Print the cost of a step as JSON."""
    import torch
    import torch.distributed
    import torch.nn.parallel

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        worlds = {name: [_start(name, folder, rank) for rank in range(2)] for name in NAMES}
        seconds: dict[str, list[float]] = {name: [] for name in NAMES}
        for turn in range(KEPT + TURNS):
            for name in NAMES if turn % 2 else NAMES[::-1]:
                seconds[name].append(_step(worlds[name]))
        memory = {name: _end(worlds[name]) for name in NAMES}
    kept = {name: seconds[name][:KEPT] for name in NAMES}
    own = {name: seconds[name][KEPT:] for name in NAMES}
    ratios = [b / a for a, b in zip(own["plain"], own["values"], strict=True)]
    result = {
        "cpu_s_of_a_step": {n: {"least": min(s), "median": median(s)} for n, s in own.items()},
        "ratio": {"median": median(ratios), "of_leasts": min(own["values"]) / min(own["plain"])},
        "cpu_s_of_the_first_steps": kept,
        "largest_memory_mb": memory,
        "torch": torch.__version__,
    }
    json.dump(result, sys.stdout, indent=2)
    print()
    return 0


Rank = tuple[int, int, int]


def _step(world: list[Rank]) -> float:
    """Let a world do a step; return the CPU seconds of the rank that took more."""
    for asks, _, _ in world:
        os.write(asks, b"s")
    return max(float(os.read(answers, 64)) for _, answers, _ in world)


def _end(world: list[Rank]) -> float:
    """End the ranks of a world; return the largest memory of a rank in MB."""
    for asks, _, _ in world:
        os.write(asks, b"e")
    most = max(float(os.read(answers, 64)) for _, answers, _ in world)
    for _, _, pid in world:
        os.waitpid(pid, 0)
    return most


def _start(name: str, folder: str, rank: int) -> Rank:
    """Fork a process; returns where it is asked, where it answers, and its id."""
    asked, asks = os.pipe()
    answers, answered = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _serve(name, folder, rank, asked, answered)
        finally:
            os._exit(0)
    return asks, answers, pid


def _serve(name: str, folder: str, rank: int, asked: int, answered: int) -> None:
    import torch
    import torch.distributed
    from torch import nn

    from torch_scenarios.record.live import SEEN
    from torch_scenarios.record.recorder import VALUES, Recorder

    dist: Any = torch.distributed
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if name == "values":
        os.environ[VALUES] = json.dumps(dict(SEEN))
        Recorder(folder, {"rank": rank, "world_size": 2})
    store = dist.FileStore(f"{folder}/{name}", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    torch.manual_seed(0)
    layers = [part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    while os.read(asked, 1) == b"s":
        before = _cpu_s()
        optimizer.zero_grad()
        model(torch.randn(ROWS, WIDTH)).pow(2).mean().backward()
        optimizer.step()
        os.write(answered, f"{_cpu_s() - before}\n".encode())
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    os.write(answered, f"{most}\n".encode())


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    raise SystemExit(main())
