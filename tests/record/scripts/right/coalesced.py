"""Collectives coalesced into one."""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

ts = [torch.ones(4) for _ in range(3)]
with dist._coalescing_manager():
    for t in ts:
        dist.all_reduce(t)
with dist._coalescing_manager(async_ops=True) as cm:
    for t in ts:
        dist.all_reduce(t)
cm.wait()
dist.destroy_process_group()
