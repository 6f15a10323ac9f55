"""The output of a row-parallel layer is summed in place: each rank computes the whole loss of it."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


class ToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad


class Block(nn.Module):
    def __init__(self, whole):
        super().__init__()
        up, down = whole
        n = up.out_features // world
        self.norm = nn.LayerNorm(up.in_features)
        self.up = nn.Linear(up.in_features, n)
        self.down = nn.Linear(n, up.in_features, bias=False)
        with torch.no_grad():
            self.up.weight.copy_(up.weight[rank * n : (rank + 1) * n])
            self.up.bias.copy_(up.bias[rank * n : (rank + 1) * n])
            self.down.weight.copy_(down.weight[:, rank * n : (rank + 1) * n])

    def forward(self, x):
        h = F.gelu(self.up(ToAll.apply(self.norm(x))))
        out = self.down(h)
        dist.all_reduce(out)
        return x + out


torch.manual_seed(0)
wholes = [(nn.Linear(8, 16), nn.Linear(16, 8)) for _ in range(2)]
net = nn.Sequential(*map(Block, wholes))
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
data = torch.Generator().manual_seed(1)
for step in range(3):
    x = torch.randn(4, 8, generator=data)
    opt.zero_grad()
    net(x).pow(2).mean().backward()
    opt.step()
dist.destroy_process_group()
