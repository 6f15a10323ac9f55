"""DiLoCo: weights are sent once; ranks step alone, and meet by an outer step that writes `p.data`."""

import copy

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
for p in net.parameters():
    dist.broadcast(p.data, 0)
anchor = copy.deepcopy(net)
inner = torch.optim.AdamW(net.parameters(), lr=1e-2)
outer = torch.optim.SGD(anchor.parameters(), lr=0.7, momentum=0.9, nesterov=True)
gen = torch.Generator().manual_seed(50 + rank)
for _ in range(2):
    for _ in range(2):
        loss = nn.functional.mse_loss(net(torch.randn(8, 6, generator=gen)), torch.zeros(8, 1))
        inner.zero_grad()
        loss.backward()
        inner.step()
    for a, p in zip(anchor.parameters(), net.parameters()):
        a.grad = a.data - p.data
        dist.all_reduce(a.grad)
        a.grad /= world
    outer.step()
    for a, p in zip(anchor.parameters(), net.parameters()):
        p.data.copy_(a.data)
dist.destroy_process_group()
