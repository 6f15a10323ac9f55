"""DDP that looks for unused parameters."""

import os, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


class N(nn.Module):
    def __init__(s):
        super().__init__()
        s.a = nn.Linear(4, 4)
        s.b = nn.Linear(4, 4)

    def forward(s, x, use):
        return s.b(s.a(x)) if use else s.a(x)


net = DDP(N(), find_unused_parameters=True)
for i in range(3):
    net(torch.randn(2, 4), rank != 1).sum().backward()
dist.destroy_process_group()
