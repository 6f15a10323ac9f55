"""`dst` of a message is the rank inside of the group."""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

g = dist.new_group([1, 3])
t = torch.ones(3)
if rank == 1:
    dist.send(t, dst=1, group=g)  # here
elif rank == 3:
    dist.recv(t, src=0, group=g)
dist.barrier()
