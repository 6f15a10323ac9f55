"""Each rank's micro-batch is its own, so that it reduces its gradients in another turn.

Ranks: 2
Told: differs in its turn 2: True on rank 0; False on rank 1
Told: and that from `micro = MICRO[rank]` (steps_of_own_memory.py:18), of `MICRO = {0: 4, 1: 2}`
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

MICRO = {0: 4, 1: 2}  # cause # right: MICRO = {0: 4, 1: 4}


class Steps:
    def __init__(self, rank, world):
        micro = MICRO[rank]
        self.count = 16 // (micro * world)


def train(model, steps):
    for turn in range(4):
        is_last = (turn + 1) % steps.count == 0
        model.set_requires_gradient_sync(is_last)
        model(torch.ones(2, 4)).sum().backward()


def main():
    dist.init_process_group("gloo")
    steps = Steps(dist.get_rank(), dist.get_world_size())
    train(fully_shard(nn.Linear(4, 4)), steps)
    dist.barrier()
    dist.destroy_process_group()


main()
