"""Tensor parallelism by hand of two ranks, data parallelism around it; its argument is a mistake."""

import sys
import torch
import torch.distributed as dist
from torch import nn

how = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
TP = 2 if world > 1 else 1
tp_groups = [dist.new_group(list(range(i, i + TP))) for i in range(0, world, TP)]
dp_groups = [dist.new_group(list(range(i, world, TP))) for i in range(TP)]
tp_group, dp_group = tp_groups[rank // TP], dp_groups[rank % TP]
tp, dp, dp_size = rank % TP, rank // TP, world // TP


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous().clone()
        dist.all_reduce(g, group=tp_group)
        return g


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous().clone()
        dist.all_reduce(x, group=tp_group)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class MLP(nn.Module):
    def __init__(self, d=8, h=16):
        super().__init__()
        up, down = torch.randn(h, d) * 0.3, torch.randn(d, h) * 0.3
        self.up = nn.Parameter(up.chunk(TP)[tp].clone())
        self.down = nn.Parameter(down.chunk(TP, 1)[tp].clone())

    def forward(self, x):
        return x + Reduce.apply(torch.relu(Copy.apply(x) @ self.up.T) @ self.down.T)


torch.manual_seed(0)
net = nn.Sequential(MLP(), MLP(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    x, y = torch.randn(8, 8), torch.randn(8, 1)
    opt.zero_grad()
    nn.functional.mse_loss(net(x.chunk(dp_size)[dp]), y.chunk(dp_size)[dp]).backward()
    for p in net.parameters():
        dist.all_reduce(p.grad, group=dp_group)
        p.grad /= world if how == "world" else dp_size
    opt.step()
dist.destroy_process_group()
