"""The owner of a parameter does not send it.

Found: replicas_differ
Says: alone steps it (line 32), and nothing sends it to the others since
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
params = list(net.parameters())
mine = params[rank::world]
opt = torch.optim.Adam(mine, lr=0.1)
g = torch.Generator().manual_seed(1)
for step in range(4):
    x = torch.randn(16, 8, generator=g).chunk(world)[rank]
    net.zero_grad()
    net(x).pow(2).mean().backward()
    for p in params:
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
    for i, p in enumerate(params[:-1]):
        dist.broadcast(p.data, src=i % world)  # replicas_differ
dist.destroy_process_group()
