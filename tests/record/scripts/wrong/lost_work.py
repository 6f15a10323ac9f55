"""Work is never waited for.

Finds: missing_wait
"""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

x = torch.ones(4)
w = dist.all_reduce(x, async_op=True)  # here
y = x * 2
dist.barrier()
dist.destroy_process_group()
