"""Gradients are reduced group by group, in the order in which a rank has registered the groups.

Ranks: 4
Told: `if rank == 1`
"""

import torch
import torch.distributed as dist


class Synchronizer:
    def __init__(self):
        self.groups = {}

    def register(self, name, group):
        self.groups[name] = group

    def __call__(self, gradients):
        for name, group in self.groups.items():
            dist.all_reduce(gradients[name], group=group)


dist.init_process_group("gloo")
rank = dist.get_rank()
everyone = dist.new_group([0, 1, 2, 3])
pair = dist.new_group([0, 1])
other = dist.new_group([2, 3])
sync = Synchronizer()
if rank == 1:  # cause # right: if rank == 9:
    sync.register("expert", pair)
    sync.register("shared", everyone)
else:
    sync.register("shared", everyone)
    sync.register("expert", pair if rank < 2 else other)
for _ in range(2):
    sync({"shared": torch.ones(16), "expert": torch.ones(8)})
dist.destroy_process_group()
