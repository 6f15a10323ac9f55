"""Norms in front of tensor-parallel layers see a part of the sequence, and are not reduced.

Found: replicas_differ
Says: sum the gradients of these norms over the ranks
"""

import torch
import torch.distributed as dist
from torch import nn


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(world)]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad.chunk(world)[rank].contiguous()


class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous().clone()
        dist.all_reduce(x)
        return x.chunk(world)[rank].contiguous()

    @staticmethod
    def backward(ctx, grad):
        parts = [torch.empty_like(grad) for _ in range(world)]
        dist.all_gather(parts, grad.contiguous())
        return torch.cat(parts)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        up, down = torch.randn(32, 8) * 0.2, torch.randn(8, 32) * 0.2
        self.norm = nn.LayerNorm(8)
        self.up = nn.Parameter(up.chunk(world)[rank].clone())
        self.up_bias = nn.Parameter(torch.zeros(32 // world))
        self.down = nn.Parameter(down.chunk(world, 1)[rank].clone())

    def forward(self, x):
        h = Gather.apply(self.norm(x))
        h = torch.relu(h @ self.up.T + self.up_bias)
        return x + Scatter.apply(h @ self.down.T)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(5)
net = nn.Sequential(Block(), Block())
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
data = torch.Generator().manual_seed(0)
for step in range(3):
    x = torch.randn(8, 3, 8, generator=data)
    loss = (net(x.chunk(world)[rank]) - 1).pow(2).sum() / x.numel()
    opt.zero_grad()
    loss.backward()
    opt.step()  # replicas_differ
dist.destroy_process_group()
