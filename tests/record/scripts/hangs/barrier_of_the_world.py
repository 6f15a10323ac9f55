"""The first replica writes what its stage has averaged, and the barrier in it has no group.

Ranks: 4
Told: passes `group=group` at
"""

import torch
import torch.distributed as dist


def export(group, weights):
    dist.all_reduce(weights, group=group)
    dist.barrier()  # cause # right: dist.barrier(group=group)
    return weights / dist.get_world_size(group)


dist.init_process_group("gloo")
rank = dist.get_rank()
stages = [dist.new_group([0, 1]), dist.new_group([2, 3])]
weights = torch.full((3,), float(rank))
for step in range(3):
    dist.all_reduce(weights)
    if rank < 2:
        weights = export(stages[0], weights)
dist.destroy_process_group()
