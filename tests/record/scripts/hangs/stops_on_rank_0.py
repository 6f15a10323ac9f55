"""Rank 0 validates, and leaves the loop over epochs by itself.

Ranks: 2
Told: under `if stopper.step(
Told: `broadcast` what they decide
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Stopper:
    def __init__(self, patience):
        self.patience, self.best, self.waited = patience, float("inf"), 0

    def step(self, value):
        self.waited = 0 if value < self.best else self.waited + 1
        self.best = min(self.best, value)
        return self.waited >= self.patience


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Linear(2, 1))
    stopper = Stopper(patience=2)
    for epoch in range(6):
        for _ in range(2):
            model(torch.ones(2, 2)).sum().backward()
        if rank == 0:
            if stopper.step(float(epoch)):  # cause # right: if False:
                break
    dist.barrier()
    dist.destroy_process_group()


main()
