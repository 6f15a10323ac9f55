"""The weights of layers are averaged every second step, and their biases never.

Found: replicas_differ
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(4):
    opt.zero_grad()
    net(torch.randn(4, 8)).pow(2).mean().backward()  # replicas_differ
    opt.step()
    if step % 2:
        for p in (each for each in net.parameters() if each.ndim > 1):
            dist.all_reduce(p.data)
            p.data /= world
dist.destroy_process_group()
