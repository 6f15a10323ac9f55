"""A rank raises between collectives."""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

for i in range(4):
    if rank == 2 and i == 2:
        raise ValueError("bad sample")  # here
    dist.all_reduce(torch.ones(2))
dist.destroy_process_group()
