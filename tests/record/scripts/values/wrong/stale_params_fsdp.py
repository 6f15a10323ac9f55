"""The optimizer is made before the model is sharded.

Found: parameter_not_wrapped
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

from torch.distributed.fsdp import fully_shard

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for m in (net[0], net[2], net):
    fully_shard(m)
g = torch.Generator().manual_seed(rank)
for step in range(4):
    opt.zero_grad()
    net(torch.randn(8, 8, generator=g)).pow(2).mean().backward()
    opt.step()  # parameter_not_wrapped
dist.destroy_process_group()
