"""A metric is computed, over all ranks, under an `if` on what the rank itself has found.

Ranks: 2
Told: goes into `if len(metric.targets) > 0` (metric_of_own_targets.py:
Told: fix: move what communicates out of `if len(metric.targets) > 0`
"""

import torch
import torch.distributed as dist


class Metric:
    def __init__(self):
        self.targets = {}

    def update(self, number, boxes):
        if len(boxes):
            self.targets[number] = boxes

    def compute(self):
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, self.targets)
        return sum(len(each) for each in parts)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    metric = Metric()
    for number in range(4 * rank, 4 * rank + 4):
        metric.update(number, [number] if number < 3 else [])
    if len(metric.targets) > 0:  # cause # right: if True:
        print(metric.compute(), flush=True)
    loss = torch.ones(1)
    dist.all_reduce(loss)
    dist.destroy_process_group()


main()
