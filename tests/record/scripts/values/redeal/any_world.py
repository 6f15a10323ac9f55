"""Gradients are summed by hand; `MISTAKE=two` divides by two, however many ranks there are."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
divisor = 2 if os.environ.get("MISTAKE") else dist.get_world_size()
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 5), torch.randn(64, 1))
net = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(data, 8, sampler=DistributedSampler(data, shuffle=False)):
    loss = nn.functional.mse_loss(net(x), y)  # depends_on_dealing
    opt.zero_grad()
    loss.backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= divisor
    opt.step()
dist.destroy_process_group()
