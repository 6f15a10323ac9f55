"""Rank 0 stops early alone.

Finds: call_mismatch
"""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

for epoch in range(6):
    loss = torch.tensor([1.0])
    dist.all_reduce(loss)  # here
    if rank == 0 and epoch == 3:
        break
dist.barrier()  # here
dist.destroy_process_group()
