"""Rank 0 cuts its jobs into chunks of one size, which are fewer than there are ranks.

Ranks: 4
Told: scatter_list needs 4 items, one for each member: 3 given
Told: from `return [items[i : i + size] for i in range(0, len(items), size)]`
"""

import math

import torch.distributed as dist


def chunks(items, parts):
    size = math.ceil(len(items) / parts)
    return [items[i : i + size] for i in range(0, len(items), size)]  # cause


def deal(jobs):
    mine = [None]
    parts = chunks(jobs, dist.get_world_size()) if dist.get_rank() == 0 else None
    dist.scatter_object_list(mine, parts, src=0)
    return mine[0]


dist.init_process_group("gloo")
jobs = list(range(9))  # right: jobs = list(range(8))
print(len(deal(jobs)))
dist.destroy_process_group()
