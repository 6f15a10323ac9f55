"""A rank leaves its loop early, and its next call meets one of the loop.

Finds: dtype_mismatch
Told: out of step
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def train(model, steps=3):
    for step in range(steps):
        if rank == 1 and step == 2:
            return
        model(torch.randn(2, 8)).sum().backward()
        for each in model.parameters():
            dist.all_reduce(each.grad)  # here


train(nn.Linear(8, 4))
samples = torch.tensor([rank])
dist.all_reduce(samples)  # here
dist.destroy_process_group()
