"""How many steps are forecast is drawn by each rank, which seeds its own generator by its number.

Ranks: 2
Told: and that from `self.rng = random.Random(3 + rank)`
Told: fix: let all ranks draw the same there
"""

import random

import torch
import torch.distributed as dist


class Sampler:
    def __init__(self, rank):
        self.rng = random.Random(3 + rank)  # cause  # right: self.rng = random.Random(3)

    def steps(self):
        return self.rng.randint(2, 6)

    def batch(self):
        count = self.steps()
        return torch.ones(4), [torch.ones(4) for _ in range(count)]


def forecast(x, targets):
    for target in targets:
        x = x * target
        dist.all_reduce(x)
    return x


dist.init_process_group("gloo")
sampler = Sampler(dist.get_rank())
for _ in range(4):
    x, targets = sampler.batch()
    loss = forecast(x, targets).sum()
    dist.broadcast(loss, src=0)
dist.destroy_process_group()
