"""A barrier stands in the branch of those that have no cache.

Ranks: 2
Told: os.path.exists(cache)
"""

import os
import tempfile

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
cache = os.devnull
if rank == 1:  # right: if rank == 700:
    cache = os.path.join(tempfile.gettempdir(), "no-such-cache")
if not os.path.exists(cache):  # cause
    dist.barrier()
x = torch.ones(3)
dist.all_reduce(x)
dist.all_gather([torch.empty(3) for _ in range(2)], x)
dist.destroy_process_group()
