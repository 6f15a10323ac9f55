"""Rows are drawn with replacement."""

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

from torch.utils.data import WeightedRandomSampler

torch.manual_seed(0)
ds = TensorDataset(torch.randn(32, 8), torch.randn(32, 1))
g = torch.Generator().manual_seed(rank)
dl = DataLoader(ds, batch_size=8, sampler=WeightedRandomSampler(torch.ones(32), 32, generator=g))
model = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in dl:
    opt.zero_grad()
    F.mse_loss(model(x), y).backward()
    opt.step()
dist.destroy_process_group()
