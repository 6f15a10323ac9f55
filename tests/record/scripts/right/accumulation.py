"""Gradients accumulated without communication: no_sync."""

import os, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
import contextlib

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

net = DDP(nn.Linear(8, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    for micro in range(4):
        ctx = net.no_sync() if micro < 3 else contextlib.nullcontext()
        with ctx:
            net(torch.randn(4, 8)).sum().backward()
    opt.step()
    opt.zero_grad()
dist.destroy_process_group()
