"""Rank 0 alone asks for the mean loss, which is a collective.

Ranks: 3
Told: `if rank == 0`
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def mean(value: torch.Tensor) -> float:
    dist.all_reduce(value)
    return value.item() / dist.get_world_size()


weights = torch.ones(8)
for step in range(4):
    gradient = weights * step
    dist.all_reduce(gradient)
    if step % 2 == 1:
        if rank == 0:  # cause # right: if rank >= 0:
            print("loss", mean(torch.ones(1)))
dist.destroy_process_group()
