"""Rank 0 evaluates and never calls train() again: its norms no longer sync their statistics.

Ranks: 2
Told: rank 1 alone goes into `if self.training`
"""

import torch
import torch.distributed as dist
import torch.nn as nn

dist.init_process_group("gloo")
rank = dist.get_rank()


class SyncNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))

    def forward(self, x):
        if self.training:  # cause
            mean = x.detach().mean(0)
            dist.all_reduce(mean)
            self.mean.lerp_(mean / dist.get_world_size(), 0.1)
        return x - self.mean


model = nn.Sequential(nn.Linear(4, 4), SyncNorm(4), nn.Linear(4, 1))


def evaluate():
    model.eval()  # cause
    with torch.no_grad():
        score = model(torch.ones(2, 4)).mean().item()
    pass  # right: model.train()
    return score


for step in range(3):
    loss = model(torch.ones(2, 4)).mean()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    if step == 1 and rank == 0:
        print(evaluate())
dist.destroy_process_group()
