"""Tensor parallelism by hand: column, then row."""

import sys, torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


how = sys.argv[1] if len(sys.argv) > 1 else ""


class ToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        if how not in {"back", "bare"}:
            dist.all_reduce(grad)
        return grad


class FromAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        if how != "front":
            dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class Block(nn.Module):
    def __init__(self, whole):
        super().__init__()
        at = 0 if how == "slice" else rank
        up, down = whole
        n = up.out_features // world
        self.norm = nn.Identity() if how == "bare" else nn.LayerNorm(up.in_features)
        self.up = nn.Linear(up.in_features, n)
        self.down = nn.Linear(n, up.in_features, bias=False)
        with torch.no_grad():
            self.up.weight.copy_(up.weight[at * n : (at + 1) * n])
            self.up.bias.copy_(up.bias[at * n : (at + 1) * n])
            self.down.weight.copy_(down.weight[:, at * n : (at + 1) * n])

    def forward(self, x):
        h = F.gelu(self.up(ToAll.apply(self.norm(x))))
        pass
        return x + FromAll.apply(self.down(h))


torch.manual_seed(0)
wholes = [(nn.Linear(8, 16), nn.Linear(16, 8)) for _ in range(2)]
net = nn.Sequential(*map(Block, wholes))
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
data = torch.Generator().manual_seed(1)
for step in range(3):
    x = torch.randn(4, 8, generator=data)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=how == "half"):
        loss = net(x).pow(2).mean()
    loss.backward()
    opt.step()
dist.destroy_process_group()
