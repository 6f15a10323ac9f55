"""FSDP2 over rows in parts."""

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

from torch.distributed.fsdp import fully_shard

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
for m in (net[0], net[2], net):
    fully_shard(m)
opt = torch.optim.AdamW(net.parameters(), lr=0.01)
g = torch.Generator().manual_seed(1)
for step in range(3):
    x = torch.randn(16, 8, generator=g).chunk(world)[rank]
    opt.zero_grad()
    loss = net(x).pow(2).mean()
    loss.backward()
    opt.step()
dist.destroy_process_group()
