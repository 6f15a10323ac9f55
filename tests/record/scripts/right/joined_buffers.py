"""DDP's own join, with buffers."""

import os, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

net = DDP(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    with net.join():
        for i in range(3 + rank):
            net(torch.randn(4, 4)).sum().backward()
            opt.step()
            opt.zero_grad()
dist.barrier()
dist.destroy_process_group()
