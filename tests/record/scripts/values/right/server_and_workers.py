"""Workers send gradients to the rank that steps."""

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
g = torch.Generator().manual_seed(rank)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    for p in net.parameters():
        dist.broadcast(p.data, 0)
    if rank:
        net.zero_grad()
        net(torch.randn(8, 8, generator=g)).pow(2).mean().backward()
    for p in net.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        if rank == 0:
            p.grad.zero_()
        dist.reduce(p.grad, 0)
    if rank == 0:
        for p in net.parameters():
            p.grad /= world - 1
        opt.step()
dist.destroy_process_group()
