"""A frozen body without DDP, a head with it."""

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
body = nn.Sequential(nn.Linear(8, 16), nn.Tanh()).requires_grad_(False).eval()
head = DDP(nn.Linear(16, 1))
opt = torch.optim.AdamW(head.parameters(), lr=0.01)
g = torch.Generator().manual_seed(1)
for step in range(4):
    x = torch.randn(16, 8, generator=g).chunk(world)[rank]
    with torch.no_grad():
        h = body(x)
    opt.zero_grad()
    head(h).pow(2).mean().backward()
    opt.step()
dist.destroy_process_group()
