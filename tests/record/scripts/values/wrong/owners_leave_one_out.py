"""ZeRO 1 by hand: the parts leave the last parameter out, and nobody steps it.

Found: parameter_not_wrapped
"""

import torch
import torch.distributed as dist
from torch import nn


def deal(parameters, world):
    share = len(parameters) // world
    parts = [parameters[at * share : (at + 1) * share] for at in range(world)]
    return parts


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(17)
net = nn.Sequential(
    nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1, bias=False)
)
parts = deal(list(net.parameters()), world)
opt = torch.optim.SGD(parts[rank], lr=0.05, momentum=0.9)
for step in range(4):
    x = torch.randn(8, 5).chunk(world)[rank]
    net.zero_grad()
    net(x).pow(2).mean().backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()  # parameter_not_wrapped
    for owner, part in enumerate(parts):
        for p in part:
            dist.broadcast(p.data, src=owner)
dist.destroy_process_group()
