"""Inner steps of each rank's own, and outer ones by what they moved."""

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
outer = copy.deepcopy(net)
inner = torch.optim.AdamW(net.parameters(), lr=0.01)
out = torch.optim.SGD(outer.parameters(), lr=0.7, momentum=0.9, nesterov=True)
g = torch.Generator().manual_seed(rank)
for round in range(3):
    for k in range(4):
        inner.zero_grad()
        net(torch.randn(8, 8, generator=g)).pow(2).mean().backward()
        inner.step()
    for a, b in zip(outer.parameters(), net.parameters()):
        a.grad = a.detach() - b.detach()
        dist.all_reduce(a.grad)
        a.grad /= world
    out.step()
    net.load_state_dict(outer.state_dict())
dist.destroy_process_group()
