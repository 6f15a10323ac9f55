"""A rank passes another size.

Finds: shape_mismatch
"""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

x = torch.ones(4 if rank != 2 else 5)
dist.all_reduce(x)  # here
dist.destroy_process_group()
