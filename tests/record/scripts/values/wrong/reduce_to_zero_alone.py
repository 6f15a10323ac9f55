"""Gradients are reduced to rank 0, and every rank steps.

Found: replicas_differ
Says: the ranks step it with other gradients, though this call has reduced them
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
opt = torch.optim.SGD(net.parameters(), lr=0.1)
g = torch.Generator().manual_seed(1)
for step in range(4):
    x = torch.randn(16, 8, generator=g).chunk(world)[rank]
    opt.zero_grad()
    net(x).pow(2).mean().backward()
    for p in net.parameters():
        dist.reduce(p.grad, dst=0)  # replicas_differ
        p.grad /= world
    opt.step()
dist.destroy_process_group()
