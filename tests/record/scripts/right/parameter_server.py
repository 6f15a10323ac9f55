"""A parameter server: receives from anyone."""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

t = torch.zeros(2)
if rank == 0:
    done = 0
    while done < world - 1:
        src = dist.recv(t)
        if t[0] < 0:
            done += 1
        else:
            dist.send(t, src)
else:
    for i in range(2):
        dist.send(torch.ones(2), 0)
        dist.recv(t, 0)
    dist.send(-torch.ones(2), 0)
dist.destroy_process_group()
