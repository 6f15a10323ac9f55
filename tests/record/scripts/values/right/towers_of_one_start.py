"""Two towers, one on each rank, that begin with one random projection; they meet in a contrastive loss."""

import torch
import torch.distributed as dist
from torch import nn


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(out, x)
        return torch.stack(out)

    @staticmethod
    def backward(ctx, g):
        return g[dist.get_rank()].contiguous()


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
body = nn.Sequential(nn.Linear(5 + rank, 12), nn.Tanh())
torch.manual_seed(7)
head = nn.Linear(12, 6)
tower = nn.Sequential(body, head)
opt = torch.optim.Adam(tower.parameters(), lr=1e-2)
g = torch.Generator().manual_seed(3)
for _ in range(4):
    x = torch.randn(8, 5 + world, generator=g)
    mine = x[:, : 5 + rank] * (1 + rank)
    z = nn.functional.normalize(tower(mine), dim=1)
    every = Gather.apply(z)
    loss = nn.functional.cross_entropy(
        every[rank] @ every[(rank + 1) % world].T * 4, torch.arange(8)
    )
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(tower.parameters(), 0.1)
    opt.step()
dist.destroy_process_group()
