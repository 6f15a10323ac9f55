"""A distributed checkpoint is saved by rank 0 alone.

Ranks: 2
Told: if improved and dist.get_rank() == 0
"""

import os
import torch
import torch.distributed as dist
from torch import nn

import tempfile
import torch.distributed.checkpoint as dcp


class State:
    def __init__(self, net):
        self.net, self.best = net, float("inf")

    def on_validation(self, loss, folder):
        improved = loss < self.best
        self.best = min(loss, self.best)
        if improved and dist.get_rank() == 0:  # cause  # right: if improved:
            dcp.save({"net": self.net.state_dict()}, checkpoint_id=os.path.join(folder, "best"))


def main():
    dist.init_process_group("gloo")
    holder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(holder, src=0)
    state = State(nn.Linear(3, 3))
    for loss in (3.0, 2.0):
        v = torch.tensor([loss])
        dist.all_reduce(v)
        state.on_validation(v.item(), holder[0])
    dist.barrier()
    dist.destroy_process_group()


main()
