"""Tokens to experts and back: sizes are exchanged first."""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

torch.manual_seed(rank)
for step in range(3):
    counts = torch.randint(0, 5, (world,))
    recv = torch.empty_like(counts)
    dist.all_to_all_single(recv, counts)
    x = torch.randn(int(counts.sum()), 6)
    out = torch.empty(int(recv.sum()), 6)
    dist.all_to_all_single(out, x, recv.tolist(), counts.tolist())
    back = torch.empty_like(x)
    dist.all_to_all_single(back, out, counts.tolist(), recv.tolist())
dist.destroy_process_group()
