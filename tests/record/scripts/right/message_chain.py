"""A message through all ranks, blocking and not."""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

t = torch.zeros(1)
if rank == 0:
    t += 1
    dist.send(tensor=t, dst=1)
else:
    dist.recv(tensor=t, src=rank - 1)
    t += 1
    if rank < world - 1:
        dist.send(tensor=t, dst=rank + 1)
print(rank, t)
if rank == 0:
    req = dist.isend(t, dst=1)
    req.wait()
elif rank == 1:
    req = dist.irecv(t, src=0)
    req.wait()
dist.destroy_process_group()
