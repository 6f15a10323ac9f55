"""A rank raises, and `finally` has a collective.

Finds: call_mismatch
"""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

try:
    for i in range(4):
        dist.all_reduce(torch.ones(2))  # here
        if rank == 1 and i == 2:
            raise RuntimeError("bad batch")
finally:
    dist.barrier()  # here
dist.destroy_process_group()
