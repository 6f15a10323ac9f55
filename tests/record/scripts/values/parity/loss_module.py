"""A loss is a module, and its mean is divided by the ranks, which DDP does once more."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(5)
net = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
criterion = nn.MSELoss()
parts = world if "twice" in sys.argv else 1
for step in range(3):
    opt.zero_grad()
    for micro in range(2):
        g = torch.Generator().manual_seed(2 * step + micro)
        x = torch.randn(16, 10, generator=g).chunk(world)[rank]
        loss = criterion(net(x), x.sum(1, keepdim=True)) / 2 / parts
        loss.backward()
    opt.step()
dist.destroy_process_group()
