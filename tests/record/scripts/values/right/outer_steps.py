"""Each rank trains by itself for some steps; what it has moved is averaged."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 2))
inner = torch.optim.AdamW(net.parameters(), lr=1e-2)
anchor = [p.detach().clone() for p in net.parameters()]
outer = torch.optim.SGD(anchor, lr=0.7, momentum=0.9, nesterov=True)
g = torch.Generator().manual_seed(rank)
for round in range(3):
    for _ in range(4):
        x = torch.randn(8, 6, generator=g)
        inner.zero_grad()
        (net(x) - x[:, :2]).square().mean().backward()
        inner.step()
    for a, p in zip(anchor, net.parameters()):
        a.grad = a - p.detach()
    for a in anchor:
        if a.grad is not None:
            dist.all_reduce(a.grad)
            a.grad /= world
    outer.step()
    with torch.no_grad():
        for a, p in zip(anchor, net.parameters()):
            p.copy_(a)
dist.destroy_process_group()
