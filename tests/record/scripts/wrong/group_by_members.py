"""A group is made by its members only.

Finds: group_creation
"""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

if rank < 2:
    g = dist.new_group([0, 1])  # here
    dist.all_reduce(torch.ones(2), group=g)
dist.barrier()
dist.destroy_process_group()
