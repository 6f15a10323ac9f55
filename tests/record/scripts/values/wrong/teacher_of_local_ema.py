"""A teacher follows the model by something that differs between ranks.

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
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
model = DDP(net)
teacher = copy.deepcopy(net).requires_grad_(False)
center = torch.zeros(4)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(1)
for step in range(4):
    x = torch.randn(16, 8, generator=g).chunk(world)[rank]
    with torch.no_grad():
        t = teacher(x)  # replicas_differ
        center = 0.9 * center + 0.1 * t.mean(0)
    loss = -(F.softmax(t - center, -1) * F.log_softmax(model(x), -1)).sum(-1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for a, b in zip(teacher.parameters(), net.parameters()):
            a.mul_(0.9).add_(b + 0.01 * t.mean(), alpha=0.1)
dist.destroy_process_group()
