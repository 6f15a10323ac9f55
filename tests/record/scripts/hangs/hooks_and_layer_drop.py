"""Layers are left out at random, by seeds of each rank, and hooks reduce the gradients there are.

Ranks: 2
Told: is drawn by each rank
Told: seeded by `torch.manual_seed(dist.get_rank())`
"""

import torch
import torch.distributed as dist
from torch import nn


class Encoder(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            if self.training and torch.rand(()).item() < 0.5:  # cause
                continue
            x = layer(x)
        return x


def average(parameter):
    dist.all_reduce(parameter.grad)
    parameter.grad.div_(dist.get_world_size())


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())  # right: torch.manual_seed(0)
model = Encoder(6)
for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(average)
for _ in range(3):
    model(torch.ones(2, 4, requires_grad=True)).sum().backward()
dist.barrier()
dist.destroy_process_group()
