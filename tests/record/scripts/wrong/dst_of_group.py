"""`dst` of a gather is the rank inside of the group."""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

g = dist.new_group([1, 3])
if rank in (1, 3):
    t = torch.ones(3)
    out = [torch.zeros(3), torch.zeros(3)] if dist.get_rank(g) == 1 else None
    dist.gather(t, out, dst=1, group=g)  # here
dist.barrier()
dist.destroy_process_group()
