"""Five rows are cut for four ranks, which gives three parts.

Ranks: 4
Told: `parts` is set by `parts = rows.chunk(dist.get_world_size())`
Told: which gives fewer parts than asked for where the rows do not divide
"""

import torch
import torch.distributed as dist


def shard(rows):
    parts = rows.chunk(dist.get_world_size())  # cause # right: parts = rows.tensor_split(4)
    return parts[dist.get_rank()]


def main():
    dist.init_process_group("gloo")
    score = shard(torch.ones(5, 3)).sum()
    dist.all_reduce(score)
    dist.destroy_process_group()


main()
