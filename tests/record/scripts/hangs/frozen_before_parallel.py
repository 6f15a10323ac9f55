"""The embedding needs a gradient on rank 0 alone, and what is behind it reduces that.

Ranks: 2
Told: autograd runs `CopyToParallel.backward` where the input of `CopyToParallel` needs a gradient
"""

import torch
import torch.distributed as dist


class CopyToParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        dist.all_reduce(gradient)
        return gradient


class Net(torch.nn.Module):
    def __init__(self, tunes):
        super().__init__()
        self.embed = torch.nn.Embedding(10, 4)
        weight = self.embed.weight
        weight.requires_grad_(tunes)  # cause # right: weight.requires_grad_(True)
        self.up = torch.nn.Linear(4, 6)

    def forward(self, ids):
        return self.up(CopyToParallel.apply(self.embed(ids)))


dist.init_process_group("gloo")
net = Net(dist.get_rank() == 0)
for _ in range(2):
    net(torch.arange(5)).sum().backward()
    norm = sum(each.grad.norm() ** 2 for each in net.parameters() if each.grad is not None)
    dist.all_reduce(norm)
dist.destroy_process_group()
