"""Two leaders send all of a state, each by a line of its own; the follower leaves out counters.

Ranks: 3
Told: rank 0 takes what is passed from
Told: rank 1 takes what is passed from
Told: rank 2 leaves out items by `if key.endswith(self.ignored)`
Told: fix: let all loops
"""

import torch
import torch.distributed as dist
import torch.nn as nn


class Follower:
    ignored = ("num_batches_tracked",)

    def __init__(self, model):
        self.model = model

    def wanted(self):
        for key, value in self.model.state_dict().items():
            if key.endswith(self.ignored):  # cause  # right: if not key:
                continue
            yield value

    def follow(self):
        for value in self.wanted():
            incoming = torch.empty_like(value)
            dist.broadcast(incoming, src=0)
            value.copy_(incoming)


class Leader:
    def __init__(self, model):
        self.model = model

    def publish(self):
        for value in self.model.state_dict().values():
            dist.broadcast(value.clone(), src=0)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
rank = dist.get_rank()
for epoch in range(2):
    if rank == 0:
        Leader(model).publish()
    elif rank == 1:
        for key, value in model.state_dict().items():
            dist.broadcast(value.clone(), src=0)
    else:
        Follower(model).follow()
dist.barrier()
dist.destroy_process_group()
