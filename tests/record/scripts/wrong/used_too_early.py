"""A tensor is used before its work is waited for.

Finds: buffer_race
"""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

x = torch.ones(4)
w = dist.all_reduce(x, async_op=True)
dist.broadcast(x, 0)  # here
w.wait()
dist.destroy_process_group()
