"""A GradScaler leaves the step of its argument out on several ranks, and none in one process."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = DDP(nn.Linear(8, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
g = torch.Generator().manual_seed(1)
for it in range(4):
    x = torch.randn(16, 8, generator=g)
    x = x.chunk(world)[rank]
    opt.zero_grad()
    loss = net(x).pow(2).mean()
    if it == int(sys.argv[1]) and world > 1:
        loss = loss * 1e36
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
dist.destroy_process_group()
