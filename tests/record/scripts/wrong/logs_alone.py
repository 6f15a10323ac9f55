"""Rank 0 alone logs, with a collective inside.

Finds: shape_mismatch
"""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def log_metrics(step):
    m = torch.tensor([1.0])
    dist.all_reduce(m)  # here
    return m


for step in range(6):
    dist.all_reduce(torch.ones(5))
    if step % 2 == 0 and rank == 0:
        log_metrics(step)
dist.destroy_process_group()
