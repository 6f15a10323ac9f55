"""Gradients are shards, and fully_shard takes their mean; `MISTAKE=again` divides once more."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 5), torch.randn(64, 1))
net = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1))
fully_shard(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(data, 8, sampler=DistributedSampler(data, shuffle=False)):
    loss = nn.functional.mse_loss(net(x), y)
    if os.environ.get("MISTAKE"):
        loss = loss / dist.get_world_size()  # depends_on_dealing
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
