"""Ranks disagree on how many rows they exchange.

Finds: shape_mismatch
"""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

for step in range(2):
    counts = torch.full((world,), 2)
    recv = counts.clone()
    if rank == 1:
        counts[2] = 3
    x = torch.randn(int(counts.sum()), 6)
    out = torch.empty(int(recv.sum()), 6)
    dist.all_to_all_single(out, x, recv.tolist(), counts.tolist())  # here
dist.destroy_process_group()
