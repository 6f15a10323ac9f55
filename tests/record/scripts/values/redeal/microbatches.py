"""Microbatches of rows that weigh differently; `MISTAKE=means` takes the mean of their means."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
world = dist.get_world_size()
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 5), torch.arange(64.0) % 7 + 1)
net = DDP(nn.Linear(5, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
micro = []
for batch in DataLoader(data, 4, sampler=DistributedSampler(data, shuffle=False)):
    micro.append(batch)
    if len(micro) < 2:
        continue
    total = sum(weight.sum() for _, weight in micro)
    dist.all_reduce(total)
    for at, (x, weight) in enumerate(micro):
        net.require_backward_grad_sync = at == len(micro) - 1
        loss = (net(x).squeeze(1).pow(2) * weight).sum()
        own_weight = weight.sum() * len(micro)
        divisor = own_weight if os.environ.get("MISTAKE") else total / world
        own = loss / divisor  # depends_on_dealing
        own.backward()
    opt.step()
    opt.zero_grad()
    micro = []
dist.destroy_process_group()
