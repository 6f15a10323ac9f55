"""Tensor parallel: queries are split, and the one head of keys that both ranks have is not reduced.

Found: replicas_differ
"""

import torch
import torch.distributed as dist
from torch import nn


class Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad


class Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous().clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        rank, world = dist.get_rank(), dist.get_world_size()
        self.q = nn.Parameter((torch.randn(dim, dim) * 0.3).chunk(world)[rank].clone())
        self.k = nn.Parameter(torch.randn(dim // 2, dim) * 0.3)
        self.o = nn.Parameter((torch.randn(dim, dim) * 0.3).chunk(world, 1)[rank].clone())

    def forward(self, x):
        x = Enter.apply(x)
        q, k = x @ self.q.t(), x @ self.k.t()
        return Leave.apply((q @ k.transpose(1, 2)).softmax(-1) @ q @ self.o.t())


dist.init_process_group("gloo")
torch.manual_seed(3)
embed, attention, head = nn.Linear(4, 8), Attention(8), nn.Linear(8, 1)
own = [*embed.parameters(), *attention.parameters(), *head.parameters()]
opt = torch.optim.AdamW(own, lr=1e-2)
for step in range(3):
    gen = torch.Generator().manual_seed(step)
    x, y = torch.randn(4, 5, 4, generator=gen), torch.randn(4, 5, 1, generator=gen)
    loss = nn.functional.mse_loss(head(attention(embed(x))), y)
    opt.zero_grad()
    loss.backward()
    opt.step()  # replicas_differ
dist.destroy_process_group()
