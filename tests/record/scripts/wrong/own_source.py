"""A member names itself as the source.

Finds: root_mismatch
"""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
g = groups[rank // 2]
t = torch.ones(3)
dist.broadcast(t, src=rank // 2 * 2 if rank != 3 else 3, group=g)  # here
dist.barrier()
