"""Gathers of the script's own: one sums its gradient; behind the other each rank has all rows."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, own):
        parts = [torch.empty_like(own) for _ in range(world)]
        dist.all_gather(parts, own)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        part = torch.empty_like(grad.chunk(world)[rank])
        dist.reduce_scatter(part, [*grad.contiguous().chunk(world)])
        return part


class Own(Gather):
    @staticmethod
    def backward(ctx, grad):
        return grad.chunk(world)[rank]


net = DDP(nn.Linear(8, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(3):
    queries, keys = net(torch.randn(8, 8)).chunk(2)
    if step % 2:
        scores = queries @ Gather.apply(keys).T
        loss = nn.functional.cross_entropy(scores, torch.arange(4) + 4 * rank)
    else:
        scores = Own.apply(queries) @ Own.apply(keys).T
        loss = nn.functional.cross_entropy(scores, torch.arange(4 * world)) * world
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
