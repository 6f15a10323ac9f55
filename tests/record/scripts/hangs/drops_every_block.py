"""Blocks are left out at random, and each rank has its own seed: one leaves all of them out.

Ranks: 2
Told: `if self.training and rng.random() < self.rate` (drops_every_block.py:27)
Told: it draws at random, and is seeded by `rng.seed(SEEDS[dist.get_rank()])`
Told: fix: let all ranks take `if self.training and rng.random() < self.rate` (drops_every_block.py:27) the same way
"""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rng = random.Random()


class Tower(nn.Module):
    def __init__(self, depth=3, rate=0.5):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(depth))
        self.rate = rate

    def forward(self, x):
        for block in self.blocks:
            if self.training and rng.random() < self.rate:  # cause
                continue
            x = x + block(x)
        return x.sum()


def main():
    dist.init_process_group("gloo")
    rng.seed(SEEDS[dist.get_rank()])  # right: rng.seed(SEEDS[0])
    model = DistributedDataParallel(Tower(), find_unused_parameters=True)
    for _ in range(3):
        model(torch.ones(1, 4)).backward()
        model.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


SEEDS = [0, 1]
main()
