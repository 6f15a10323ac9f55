"""A rank catches its error and goes on, one collective short.

Finds: call_mismatch
"""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

for i in range(4):
    try:
        if rank == 2 and i == 2:
            raise ValueError("bad sample")
        dist.all_reduce(torch.ones(2))  # here
    except ValueError:
        continue
dist.barrier()  # here
dist.destroy_process_group()
