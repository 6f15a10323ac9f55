"""The optimizer's state is loaded on rank 0 alone.

Found: replicas_differ
Says: rank 0 loads a state of the optimizer that the others do not
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
g = torch.Generator().manual_seed(1)


def step():
    x = torch.randn(16, 8, generator=g).chunk(world)[rank]
    opt.zero_grad()
    model(x).pow(2).mean().backward()
    opt.step()


step()
step()
saved = copy.deepcopy(opt.state_dict())
opt = torch.optim.Adam(model.parameters(), lr=0.1)
if rank == 0:
    opt.load_state_dict(saved)  # replicas_differ
for _ in range(3):
    step()
dist.destroy_process_group()
