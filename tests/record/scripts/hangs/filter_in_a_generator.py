"""A generator leaves out rows by their values, and each rank has other rows.

Ranks: 2
Told: the loop `for x in batches(rows, 2)` (filter_in_a_generator.py:36) has more turns on some ranks
Told: items are left out by `rows = rows[rows[:, 0] > -0.5]` (filter_in_a_generator.py:25)
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def read_shard(rank, world):
    rows = torch.zeros(16, 4)
    rows[[1, 3, 7], 0] = -1.0
    return rows[rank::world]


def keep(rows):
    return rows


def batches(rows, size):
    rows = rows[rows[:, 0] > -0.5]  # cause # right: rows = keep(rows)
    for start in range(0, len(rows) - size + 1, size):
        yield rows[start : start + size]


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Linear(4, 1))
    rows = read_shard(dist.get_rank(), dist.get_world_size())
    for epoch in range(2):
        for x in batches(rows, 2):  # cause
            model(x).pow(2).mean().backward()
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
