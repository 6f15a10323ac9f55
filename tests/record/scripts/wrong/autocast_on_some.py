"""Autocast is on, but for one rank.

Finds: dtype_mismatch
"""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

lin = nn.Linear(4, 4)
with torch.autocast("cpu", dtype=torch.bfloat16, enabled=rank != 1):
    y = lin(torch.randn(2, 4))
dist.all_reduce(y.detach())  # here
dist.destroy_process_group()
