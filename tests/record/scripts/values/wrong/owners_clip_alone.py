"""ZeRO 1 by hand: each owner clips its own parameters by their own norm.

Found: norm_is_local
"""

import torch
import torch.distributed as dist
from torch import nn


class Sharded:
    """ZeRO 1: an owner for each parameter, which reduces, clips, steps and sends it."""

    def __init__(self, parameters, limit):
        self.parameters, self.limit = list(parameters), limit
        self.owner = {p: at % world for at, p in enumerate(self.parameters)}
        self.own = [p for p in self.parameters if self.owner[p] == rank]
        self.inner = torch.optim.Adam(self.own, lr=1e-2)

    def clip(self):
        square = sum(p.grad.square().sum() for p in self.own)
        scale = (self.limit / (square.sqrt() + 1e-6)).clamp(max=1.0)
        for p in self.own:
            p.grad.mul_(scale)  # norm_is_local

    def step(self):
        for p in self.parameters:
            dist.reduce(p.grad, self.owner[p])
            p.grad /= world
        self.clip()
        self.inner.step()
        for p in self.parameters:
            dist.broadcast(p.data, self.owner[p])
            p.grad = None


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(6)
net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 2))
opt = Sharded(net.parameters(), 0.05)
for step in range(4):
    x = torch.randn(8, 6).chunk(world)[rank]
    net(x).pow(2).mean().backward()
    opt.step()
dist.destroy_process_group()
