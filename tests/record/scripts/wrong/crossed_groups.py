"""Two groups are used in crossed order.

Finds: group_order
"""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

a = dist.new_group([0, 1, 2, 3])
b = dist.new_group([0, 1, 2, 3])
for first, second in [((a, b) if rank == 0 else (b, a))]:
    dist.all_reduce(torch.ones(2), group=first)  # here
    dist.all_reduce(torch.ones(2), group=second)  # here
dist.destroy_process_group()
