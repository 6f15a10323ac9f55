"""Each rank moves the weights by its own gradient, and puts them back before the step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = DDP(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)))
own = [*net.parameters()]
opt = torch.optim.SGD(own, 0.05)
g = torch.Generator().manual_seed(rank)
for step in range(4):
    x = torch.randn(8, 5, generator=g)
    opt.zero_grad()
    with net.no_sync():
        net(x).pow(2).mean().backward()
    kept = [p.detach().clone() for p in own]
    with torch.no_grad():
        for p in own:
            p.add_(p.grad / (p.grad.norm() + 1e-9), alpha=0.1)
    opt.zero_grad()
    net(x).pow(2).mean().backward()
    with torch.no_grad():
        for p, before in zip(own, kept, strict=True):
            p.copy_(before)
    opt.step()
dist.destroy_process_group()
