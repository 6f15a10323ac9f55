"""A loader that begins anew draws a seed that ranks share, and ranks have as many rows as they have.

Ranks: 2
Told: has ended on rank 1, which begins the next turn of `while True`
Told: turns: rank 0 3 times, rank 1 twice
"""

import torch
import torch.distributed as dist

ROWS = torch.arange(88.0).view(22, 4) / 88


def shard(rank):
    size = 12  # right: size = 11
    return ROWS[rank * size : (rank + 1) * size]


def common_seed():
    seed = torch.randint(0, 2**31, (1,))
    dist.broadcast(seed, src=0)
    return int(seed)


def endless(rows, size):
    while True:
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(common_seed()))
        for at in range(0, len(rows) - size + 1, size):  # cause
            yield rows[order[at : at + size]]


dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
batches = endless(shard(dist.get_rank()), 4)
for _ in range(12):
    model(next(batches)).pow(2).mean().backward()
dist.destroy_process_group()
