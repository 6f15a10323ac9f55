"""A group is made where it is first used, by two of four ranks.

Ranks: 4
Told: ranks 2, 3 never call
"""

import torch
import torch.distributed as dist

from functools import cached_property


class Topology:
    @cached_property
    def loggers(self):
        return dist.new_group([0, 1])  # cause

    def mean_of_loggers(self, value):
        t = torch.tensor([value])
        dist.all_reduce(t, group=self.loggers)
        return t.item() / 2


class Callback:
    def __init__(self, topology):
        self.topology = topology

    def on_step_end(self, step, loss):
        if dist.get_rank() < 2:  # cause
            print("loss", self.topology.mean_of_loggers(loss))


dist.init_process_group("gloo")
topology = Topology()
callback = Callback(topology)  # right: callback = Callback(topology); topology.loggers
for step in range(3):
    dist.all_reduce(torch.ones(2))
    callback.on_step_end(step, 1.0)
dist.barrier()
dist.destroy_process_group()
