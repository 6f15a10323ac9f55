"""The rank that gathers is taken from the rank inside of a group.

Ranks: 4
Told: which is set by `root = dist.get_rank(self.group)`
"""

import torch
import torch.distributed as dist


class Evaluator:
    def __init__(self, group):
        self.group = group
        self.results = []

    def add(self, name, value):
        self.results.append((name, value))

    def collect(self):
        first = dist.get_global_rank(self.group, 0)
        root = dist.get_rank(self.group)  # cause # right: root = first
        size = dist.get_world_size(self.group)
        held = [None] * size if root == dist.get_rank() else None
        dist.gather_object(self.results, held, dst=root, group=self.group)
        return held


dist.init_process_group("gloo")
group = dist.new_group([0, 1, 2, 3])
evaluator = Evaluator(group)
evaluator.add("accuracy", 0.5 + dist.get_rank() / 10)
evaluator.collect()
done = torch.ones(1)
dist.all_reduce(done)
dist.destroy_process_group()
