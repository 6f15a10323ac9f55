"""Two stages by hand; the norm is summed over both before it clips."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
net = nn.Linear(8, 8)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    opt.zero_grad()
    x = torch.randn(4, 8)
    if rank:
        x = torch.empty(4, 8)
        dist.recv(x, rank - 1)
        x.requires_grad_()
    y = net(x)
    if rank < world - 1:
        dist.send(y.detach(), rank + 1)
        g = torch.empty(4, 8)
        dist.recv(g, rank + 1)
        y.backward(g)
    else:
        y.pow(2).mean().backward()
    if rank:
        dist.send(x.grad, rank - 1)
    squared = nn.utils.clip_grad_norm_(net.parameters(), float("inf")) ** 2
    dist.all_reduce(squared)
    for p in net.parameters():
        p.grad.mul_(min(1.0, 0.01 / float(squared.sqrt())))
    opt.step()
dist.destroy_process_group()
