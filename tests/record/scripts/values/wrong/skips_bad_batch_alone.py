"""One rank leaves a step out.

Found: replicas_differ
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
model = DDP(net)
opt = torch.optim.Adam(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(rank)
for step in range(6):
    x = torch.randn(16, 8, generator=g)
    opt.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    if rank == 1 and step == 2:
        continue
    opt.step()  # replicas_differ
dist.destroy_process_group()
