"""Layers are left out at random, and each rank draws by its own seed.

Ranks: 2
Told: `if skip` (layers_left_out_at_random.py:27)
Told: fix: seed all ranks alike for what is drawn there
Told: it draws at random, and is seeded by `random.seed(3 + dist.get_rank())`
"""

import random

import torch
import torch.distributed as dist
from torch import nn


class Encoder(nn.Module):
    def __init__(self, depth: int, drop: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(depth))
        self.drop = drop

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 0
        dist.all_reduce(x)
        for layer in self.layers:
            skip = random.random() < self.drop
            if skip:  # cause
                continue
            x = layer(x)
            dist.all_reduce(x)
        return x


dist.init_process_group("gloo")
random.seed(3 + dist.get_rank())  # right: random.seed(3)
model = Encoder(4, 0.4)
with torch.no_grad():
    model(torch.ones(2, 8))
dist.barrier()
dist.destroy_process_group()
