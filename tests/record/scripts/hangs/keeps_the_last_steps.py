"""A list of the steps that are saved is cut on the main rank alone, and says when to save.

Ranks: 2
Told: rank 0 alone goes into `if saved.is_due(step)`
Told: depends on `old = self.steps.pop(0)`
Told: past `if dist.get_rank() != 0`
"""

import torch
import torch.distributed as dist


class Saved:
    def __init__(self, steps):
        self.steps = sorted(steps)

    def is_due(self, step):
        return step % 2 == 0 and step not in self.steps

    def clean(self, keep):
        if dist.get_rank() != 0:  # cause  # right: if False:
            return
        while len(self.steps) > keep:
            old = self.steps.pop(0)
            print("removes", old)


dist.init_process_group("gloo")
found = [[2, 4, 6]] if dist.get_rank() == 0 else [None]
dist.broadcast_object_list(found, src=0)
saved = Saved(found[0])
saved.clean(keep=1)
for step in range(3, 8):
    loss = torch.ones(4)
    dist.all_reduce(loss)
    if saved.is_due(step):
        dist.barrier()
dist.destroy_process_group()
