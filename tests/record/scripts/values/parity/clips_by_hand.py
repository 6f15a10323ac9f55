"""Gradients are clipped by hand under tensor parallelism; its argument is a mistake."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

how = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


class Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


class Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class Glu(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        gate, up, down = (torch.randn(h, d) / d**0.5 for _ in range(3))
        self.gate = nn.Parameter(gate.chunk(world)[rank].clone())
        self.up = nn.Parameter(up.chunk(world)[rank].clone())
        self.down = nn.Parameter(down.t().chunk(world, 1)[rank].clone())
        self.norm = nn.RMSNorm(d)

    def forward(self, x):
        h = Enter.apply(self.norm(x))
        return x + Leave.apply(
            F.linear(F.silu(F.linear(h, self.gate)) * F.linear(h, self.up), self.down)
        )


torch.manual_seed(13)
net = nn.Sequential(Glu(8, 16), Glu(8, 16), nn.Linear(8, 2))
sharded = [p for n, p in net.named_parameters() if n.split(".")[-1] in ("gate", "up", "down")]
whole = [p for n, p in net.named_parameters() if n.split(".")[-1] not in ("gate", "up", "down")]
opt = torch.optim.SGD(net.parameters(), lr=0.5)


def clip(limit):
    a = sum((p.grad**2).sum() for p in sharded)
    b = sum((p.grad**2).sum() for p in whole)
    if how != "local":
        dist.all_reduce(a)
    norm = (a + b).sqrt()
    for p in net.parameters():
        p.grad.mul_((limit / (norm + 1e-6)).clamp(max=1.0))


for step in range(4):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    clip(0.1)
    opt.step()
dist.destroy_process_group()
