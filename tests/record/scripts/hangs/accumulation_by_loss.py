"""Gradients are accumulated until the rank's own tokens are enough.

Ranks: 2
Told: tokens >= 8
"""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(4, 2))
tokens = 0
for step in range(4):
    tokens += 4 if rank == 0 else 3  # right: tokens += 4
    sync = tokens >= 8
    with contextlib.nullcontext() if sync else model.no_sync():  # cause
        model(torch.ones(2, 4)).sum().backward()
    if sync:
        tokens = 0
        norm = torch.ones(1)
        dist.all_reduce(norm)
dist.destroy_process_group()
