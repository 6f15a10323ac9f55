"""Chunks of keys go around a ring as often as the rank's own queries need them.

Ranks: 2
Told: has more turns on some ranks
"""

import math

import torch
import torch.distributed as dist


def exchange(kv, rank, world):
    right, left = (rank + 1) % world, (rank - 1) % world
    other = torch.empty_like(kv)
    ops = [dist.P2POp(dist.isend, kv, right), dist.P2POp(dist.irecv, other, left)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return other


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
query = torch.randn(12 if rank == 0 else 8)  # cause
steps = math.ceil(len(query) / 4)  # cause # right: steps = 3
kv = torch.full((4,), float(rank))
for _ in range(steps):
    kv = exchange(kv, rank, world)
dist.barrier()
dist.destroy_process_group()
