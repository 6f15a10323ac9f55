"""Each rank tries another learning rate; the best loss is shown."""

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
net = nn.Linear(8, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1 / (1 + rank))
g = torch.Generator().manual_seed(1)
for step in range(5):
    x = torch.randn(16, 8, generator=g)
    opt.zero_grad()
    loss = net(x).pow(2).mean()
    loss.backward()
    opt.step()
best = loss.detach().clone()
dist.all_reduce(best, op=dist.ReduceOp.MIN)
dist.destroy_process_group()
