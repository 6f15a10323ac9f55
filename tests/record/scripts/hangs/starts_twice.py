"""The logger makes the process group, and the trainer makes it again.

Ranks: 2
Told: it has made its process group already
Told: leave one of the two out
"""

import os

import torch
import torch.distributed as dist
from torch import nn


def setup_logging(level):
    """Print on the main rank only."""
    dist.init_process_group("gloo")  # cause # right: rank = int(os.environ["RANK"])
    rank = int(os.environ["RANK"])

    def log(*words):
        if rank == 0:
            print(level, *words, flush=True)

    return log


class Engine:
    def __init__(self, log):
        dist.init_process_group("gloo")  # cause
        self.log = log
        self.model = nn.parallel.DistributedDataParallel(nn.Linear(3, 3))

    def fit(self, steps):
        for step in range(steps):
            loss = self.model(torch.ones(2, 3)).sum()
            loss.backward()
            self.log("step", step, loss.item())


def main():
    log = setup_logging("info")
    log("world", os.environ["WORLD_SIZE"])
    Engine(log).fit(2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
