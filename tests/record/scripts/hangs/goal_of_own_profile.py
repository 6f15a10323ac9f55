"""A loop goes on to a goal that another method has set under an `if`, before the model was made.

Ranks: 2
Told: the loop `while self.seen < self.goal` (goal_of_own_profile.py:
Told: `self.goal` is set by `self.goal = found["rows"]`
Told: under `if found.get("rows")` (goal_of_own_profile.py:
Told: fix: let all ranks take `if found.get("rows")`
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PROFILES = [{"rows": 4}, {}]


def read_profile():
    return PROFILES[int(os.environ["RANK"])]


class Trainer:
    def __init__(self):
        self.seen, self.goal = 0, 6

    def configure(self):
        found = read_profile()
        if found.get("rows"):  # cause # right: if False:
            self.goal = found["rows"]
        return self

    def fit(self):
        model = DistributedDataParallel(nn.Linear(2, 2))
        while self.seen < self.goal:
            model(torch.ones(2, 2)).sum().backward()
            self.seen += 2


def main():
    dist.init_process_group("gloo")
    trainer = Trainer().configure()
    trainer.fit()
    rows = torch.tensor([trainer.seen, trainer.goal, 1])
    dist.broadcast(rows, 0)
    dist.destroy_process_group()


main()
