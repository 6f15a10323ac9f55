"""ZeRO-1: a sharded optimizer, its state collected on rank 0."""

import os, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
net = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.Linear(32, 4)))
opt = ZeroRedundancyOptimizer(net.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
for i in range(3):
    opt.zero_grad()
    net(torch.randn(4, 8)).sum().backward()
    opt.step()
opt.consolidate_state_dict(to=0)
dist.destroy_process_group()
