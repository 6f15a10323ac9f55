"""Weights are averaged with one other rank at a time."""

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
opt = torch.optim.SGD(net.parameters(), lr=0.1)
g = torch.Generator().manual_seed(rank)
for step in range(6):
    opt.zero_grad()
    net(torch.randn(8, 8, generator=g)).pow(2).mean().backward()
    opt.step()
    peer = rank ^ (1 << (step % 2)) if world > 2 else 1 - rank
    with torch.no_grad():
        for p in net.parameters():
            got = torch.empty_like(p)
            ops = [
                dist.P2POp(dist.isend, p.detach().clone(), peer),
                dist.P2POp(dist.irecv, got, peer),
            ]
            for q in dist.batch_isend_irecv(ops):
                q.wait()
            p.copy_((p + got) / 2)
dist.destroy_process_group()
