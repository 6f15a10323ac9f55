"""Each rank has a model of its own; their outputs are averaged."""

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

torch.manual_seed(rank)
net = nn.Linear(8, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
g = torch.Generator().manual_seed(1)
for step in range(5):
    x = torch.randn(16, 8, generator=g)
    opt.zero_grad()
    loss = net(x).pow(2).mean()
    loss.backward()
    opt.step()
    log = loss.detach().clone()
    dist.all_reduce(log)
pred = net(torch.ones(2, 8)).detach()
dist.all_reduce(pred)
pred /= world
dist.destroy_process_group()
