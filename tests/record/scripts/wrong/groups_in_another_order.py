"""Groups are made in another order on odd ranks.

Finds: group_creation
"""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

if rank % 2 == 0:
    a = dist.new_group([0, 1])  # here
    b = dist.new_group([2, 3])  # here
else:
    b = dist.new_group([2, 3])
    a = dist.new_group([0, 1])
dist.all_reduce(torch.ones(2), group=a if rank < 2 else b)
dist.destroy_process_group()
