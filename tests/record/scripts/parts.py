"""Ranks that part: KIND says why, and the marks where."""

import datetime
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

kind = os.environ["KIND"]
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=2))
rank = dist.get_rank()
x = torch.ones(3)
dist.all_reduce(x)


def leave_early() -> None:
    if kind == "way_out" and rank == 1:  # way_out
        return
    dist.barrier()  # late


if kind == "batches":
    model = DistributedDataParallel(torch.nn.Linear(3, 3))
    for _ in range(4 if rank == 0 else 3):  # batches
        model(x).sum().backward()
if kind == "branch" and rank == 0:  # branch
    dist.broadcast(x, 0)
if kind == "error":
    try:
        if rank == 1:
            open(os.path.join(os.devnull, "data")).close()
        dist.broadcast(x, 0)  # error
    except OSError:
        pass
if kind == "late" and rank == 0:
    time.sleep(4)
leave_early()
dist.all_reduce(x)
dist.all_gather([torch.empty(3) for _ in range(dist.get_world_size())], x)
dist.destroy_process_group()
