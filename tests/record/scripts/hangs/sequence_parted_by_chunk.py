"""A sequence is parted by `chunk` before layers that gather it: the last part is short.

Ranks: 3
Told: `chunk` leaves the last part short
"""

import torch
import torch.distributed as dist
from torch import nn


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        return grad.chunk(dist.get_world_size())[dist.get_rank()]


def part(x):
    return x.chunk(dist.get_world_size())[dist.get_rank()]  # cause


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        x = self.norm(x)
        return x + Gather.apply(x).mean()


dist.init_process_group("gloo")
block = Block()
for length in (9, 7):  # right: for length in (9, 6):
    x = part(torch.ones(length, 4))
    block(x).sum().backward()
dist.destroy_process_group()
