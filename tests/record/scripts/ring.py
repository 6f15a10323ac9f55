"""A ring of messages: every rank sends before it receives (BUG=2: one wrong tag instead)."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
x, y, bug = torch.full((4,), float(rank)), torch.zeros(4), os.environ.get("BUG", "1")
for turn in range(3):
    if bug == "2":
        tag = 8 if rank == 2 else 1
        if rank % 2 == 0:
            dist.send(x, (rank + 1) % world, tag=tag)
            dist.recv(y, (rank - 1) % world, tag=1)
        else:
            dist.recv(y, (rank - 1) % world, tag=1)
            dist.send(x, (rank + 1) % world, tag=1)
    else:
        dist.send(x, (rank + 1) % world)
        dist.recv(y, (rank - 1) % world)
dist.barrier()
dist.destroy_process_group()
