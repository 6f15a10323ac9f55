"""Two models of two ranks each; one flat copy has all gradients (OVER=world reduces it over all ranks)."""

import os, torch
import torch.distributed as dist
from torch import nn

how = os.environ.get("OVER", "")
dist.init_process_group("gloo")
rank = dist.get_rank()
models = [dist.new_group([0, 1]), dist.new_group([2, 3])]
replicas = [dist.new_group([0, 2]), dist.new_group([1, 3])]
model, same = models[rank // 2], replicas[rank % 2]


class ToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=model)
        return gradient


class FromAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x, group=model)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, 8)
        torch.manual_seed(1 + rank % 2)
        self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 1, bias=False)

    def forward(self, x):
        x = ToAll.apply(torch.tanh(self.first(x)))
        return FromAll.apply(self.down(torch.tanh(self.up(x))))


net = Block()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(10 + rank // 2)
for step in range(3):
    opt.zero_grad()
    net(torch.randn(4, 8)).pow(2).mean().backward()
    flat = torch.cat([p.grad.flatten() for p in net.parameters()])
    if how == "world":
        dist.all_reduce(flat)
        flat /= 4
    else:
        dist.all_reduce(flat, group=same)
        flat /= 2
    at = 0
    for p in net.parameters():
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()
    opt.step()
dist.destroy_process_group()
