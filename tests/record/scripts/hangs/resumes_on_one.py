"""One rank does not find the checkpoint of the others, and begins at epoch 0.

Ranks: 2
Told: for epoch in range(start, 4)
"""

import torch
import torch.distributed as dist

import json
import tempfile
from pathlib import Path


def local_disk(rank):
    """Each node has a disk of its own; one of them was replaced."""
    folder = Path(tempfile.mkdtemp())
    if rank == 0:  # right: if rank >= 0:
        (folder / "last.json").write_text(json.dumps({"epoch": 2}))
    return folder


def resume(folder):
    last = folder / "last.json"
    if not last.exists():  # cause
        return 0
    return json.loads(last.read_text())["epoch"]


def train_one_epoch(epoch):
    for _ in range(2):
        dist.all_reduce(torch.ones(3))


def main():
    dist.init_process_group("gloo")
    start = resume(local_disk(dist.get_rank()))
    for epoch in range(start, 4):  # cause
        train_one_epoch(epoch)
    names = [None] * dist.get_world_size()
    dist.all_gather_object(names, f"rank{dist.get_rank()}")
    dist.destroy_process_group()


main()
