"""A class that one rank alone has seen makes a name in a `defaultdict`: each name is reduced.

Ranks: 2
Told: the loop `for name in sorted(self.meters)`
Told: `self.meters` is iou/bridge: Mean on rank 0, without iou/bridge on rank 1
"""

from collections import defaultdict

import torch
import torch.distributed as dist

NAMES = ["river", "field", "bridge"]
LABELS = {0: [[1, 1], [0, 1], [2, 0]], 1: [[0, 0], [1, 1], [0, 1]]}  # what each rank has


class Mean:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value):
        self.total += value
        self.count += 1

    def reduce(self):
        pair = torch.tensor([self.total, float(self.count)])
        dist.all_reduce(pair)
        self.total, self.count = pair.tolist()


class Meters:
    def __init__(self):
        self.meters = defaultdict(Mean)

    def update(self, **values):
        for name, value in values.items():
            self.meters[name].update(float(value))  # cause

    def reduce(self):
        for name in sorted(self.meters):
            self.meters[name].reduce()


dist.init_process_group("gloo")
rank = dist.get_rank()
meters = Meters()
for row in LABELS[rank]:
    labels = torch.tensor(row)
    for each in labels.unique():  # right: for each in torch.arange(len(NAMES)):
        meters.update(**{f"iou/{NAMES[each]}": (labels == each).float().mean()})
meters.reduce()
dist.barrier()
dist.destroy_process_group()
