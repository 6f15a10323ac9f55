"""What a recorder costs a call: CPU microseconds of calls, plain and recorded, in turns.

`python -m benchmarks.record` forks two worlds of two ranks on Gloo, one of them with the recorder
of :mod:`torch_scenarios.record.recorder`. They take turns, a block of calls each, so that a load of
the machine meets both: a synchronous and an asynchronous all_reduce in a group of one, and messages
to and fro. What is reported is the CPU time of rank 0 for a call, of all threads: the difference of
each pair of turns, its median and its least.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from statistics import median
from typing import Any

#: calls of a block, and blocks
CALLS, BLOCKS = 300, 15

WAYS = ("all_reduce", "async and wait", "send and recv")


def main() -> int:
    """Print the cost of a call as JSON."""
    import torch
    import torch.distributed

    torch.set_num_threads(1)
    found: dict[str, dict[str, list[float]]] = {way: {"plain": [], "recorded": []} for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        worlds = {name: _World(name, folder) for name in ("plain", "recorded")}
        for turn in range(BLOCKS):
            for way in WAYS:
                for name in ("plain", "recorded") if turn % 2 else ("recorded", "plain"):
                    found[way][name].append(worlds[name].block(way))
        for world in worlds.values():
            world.end()
    told = {}
    for way, each in found.items():
        more = [b - a for a, b in zip(each["plain"], each["recorded"], strict=True)]
        told[way] = {
            **{name: {"least": min(us), "median": median(us)} for name, us in each.items()},
            "more": {
                "least": min(each["recorded"]) - min(each["plain"]),
                "median": median(more),
            },
        }
    json.dump({"cpu_us": told, "torch": torch.__version__}, sys.stdout, indent=2)
    print()
    return 0


class _World:
    """Two forked ranks: asked for a block, they answer with the CPU time of a call."""

    def __init__(self, name: str, folder: str) -> None:
        self._ranks = [_started(name, folder, rank) for rank in range(2)]

    def block(self, way: str) -> float:
        """Return the CPU microseconds of a call of rank 0."""
        for asks, _, _ in self._ranks:
            os.write(asks, bytes([WAYS.index(way)]))
        told = [float(os.read(answers, 64)) for _, answers, _ in self._ranks]
        return told[0]

    def end(self) -> None:
        """End the ranks."""
        for asks, _, _ in self._ranks:
            os.write(asks, bytes([len(WAYS)]))
        for _, _, pid in self._ranks:
            os.waitpid(pid, 0)


def _started(name: str, folder: str, rank: int) -> tuple[int, int, int]:
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

    dist: Any = torch.distributed
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if name == "recorded":
        from torch_scenarios.record.recorder import Recorder

        Recorder(folder, {"rank": rank, "world_size": 2})
    store = dist.FileStore(f"{folder}/{name}", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    alone = dist.new_group([rank], use_local_synchronization=True)
    tensor = torch.ones(4)

    def all_reduce() -> None:
        for _ in range(CALLS):
            dist.all_reduce(tensor, group=alone)

    def async_and_wait() -> None:
        for _ in range(CALLS):
            work = dist.all_reduce(tensor, group=alone, async_op=True)
            work.wait()

    def send_and_recv() -> None:
        for _ in range(CALLS // 2):
            if rank == 0:
                dist.send(tensor, 1)
                dist.recv(tensor, 1)
            else:
                dist.recv(tensor, 0)
                dist.send(tensor, 0)

    ways: list[Callable[[], None]] = [all_reduce, async_and_wait, send_and_recv]
    while (chosen := os.read(asked, 1)[0]) < len(ways):
        before = _cpu_s()
        ways[chosen]()
        os.write(answered, f"{(_cpu_s() - before) / CALLS * 1e6}\n".encode())


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    raise SystemExit(main())
