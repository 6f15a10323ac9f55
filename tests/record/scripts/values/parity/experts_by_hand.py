"""Experts of one rank each, by all_to_all; its argument is a mistake."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

how = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x)
        return out

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        out = torch.empty_like(g)
        dist.all_to_all_single(out, g)
        return out


inp, head = nn.Linear(6, 8), nn.Linear(8, 3)
experts = nn.Parameter((torch.randn(2, 8, 8) / 3).chunk(world)[rank].clone())
opt = torch.optim.SGD([*inp.parameters(), *head.parameters(), experts], lr=0.2)
for step in range(3):
    x, y = torch.randn(24, 6), torch.randint(0, 3, (24,))
    x, y = x.chunk(world)[rank], y.chunk(world)[rank]
    h = inp(x)
    t = torch.stack([h[0::2], h[1::2]])  # two experts
    t = (
        Exchange.apply(t.contiguous())
        .view(world, 2 // world, -1, 8)
        .transpose(0, 1)
        .reshape(2 // world, -1, 8)
    )
    t = torch.tanh(torch.bmm(t, experts))
    t = t.view(2 // world, world, -1, 8).transpose(0, 1).reshape(2, -1, 8)
    t = Exchange.apply(t.contiguous())
    h = h + torch.stack([t[0], t[1]], 1).flatten(0, 1)
    opt.zero_grad()
    F.cross_entropy(head(h), y).backward()
    for p in [*inp.parameters(), *head.parameters()]:
        dist.all_reduce(p.grad)
        p.grad /= world
    if how == "all" and world > 1:
        dist.all_reduce(experts.grad)
    if how != "sum":
        experts.grad /= world
    opt.step()
dist.destroy_process_group()
