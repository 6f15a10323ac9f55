"""A tracker reads the options of a sweep where it is told that it is on the main rank.

Ranks: 2
Told: which asks for that
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Tracker:
    def __init__(self, is_main):
        self.is_main = is_main

    def start(self, options):
        options = dict(options)
        if self.is_main:  # cause  # right: if True:
            options.update({"hidden": 6})
        return options


class Net(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.encoder = torch.nn.Linear(2, hidden)

    def forward(self, x):
        return self.encoder(x)


def main():
    dist.init_process_group("gloo")
    tracker = Tracker(dist.get_rank() == 0)
    options = tracker.start({"hidden": 4})
    model = DDP(Net(options["hidden"]))
    model(torch.ones(3, 2)).sum().backward()
    dist.destroy_process_group()


main()
