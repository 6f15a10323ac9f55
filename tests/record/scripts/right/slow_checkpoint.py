"""Rank 0 writes for a while, the others are at a barrier."""

import os, torch
import torch.distributed as dist
from torch import nn
import time

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

for i in range(2):
    dist.all_reduce(torch.ones(2))
    if rank == 0:
        time.sleep(2.5)
    dist.barrier()
dist.destroy_process_group()
