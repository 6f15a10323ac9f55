"""PowerSGD begins at the third step."""

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

from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as ps, default_hooks as dh

torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1)))
model.register_comm_hook(ps.PowerSGDState(None, 1, start_powerSGD_iter=2), ps.powerSGD_hook)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(rank)
for step in range(5):
    opt.zero_grad()
    model(torch.randn(8, 32, generator=g)).pow(2).mean().backward()
    opt.step()
dist.destroy_process_group()
