"""The gradient of a norm over parts of a sequence is not summed.

Found: gradients_differ
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
d = 8
ln, lin = nn.LayerNorm(d), nn.Linear(d, d)
net = nn.Sequential(ln, lin)
with torch.no_grad():
    ln.weight.uniform_(0.5, 1.5)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
g = torch.Generator().manual_seed(1)
for step in range(4):
    x = torch.randn(4, 12, d, generator=g)
    x = x.chunk(world, 1)[rank]  # each rank has a part of the sequence
    opt.zero_grad()
    loss = net(x).pow(2).sum() / (4 * 12 * d)
    loss.backward()
    for p in lin.parameters():
        dist.all_reduce(p.grad)
    opt.step()  # gradients_differ
dist.destroy_process_group()
