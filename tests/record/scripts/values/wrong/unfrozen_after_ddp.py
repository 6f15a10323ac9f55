"""Parameters that were frozen when DDP was made are trained later.

Found: gradients_differ
Says: as they were frozen when DistributedDataParallel took its list
"""

import os, sys, copy, math, random
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, Dataset, IterableDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
for p in net[0].parameters():
    p.requires_grad_(False)
model = DDP(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
g = torch.Generator().manual_seed(1)
for step in range(6):
    if step == 3:
        for p in net[0].parameters():
            p.requires_grad_(True)
    x = torch.randn(16, 8, generator=g).chunk(world)[rank]
    opt.zero_grad()
    model(x).pow(2).mean().backward()
    opt.step()  # gradients_differ
dist.destroy_process_group()
