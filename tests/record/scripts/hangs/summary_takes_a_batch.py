"""Rank 0 takes a batch out of the stream for its summary of the model, and has one step less.

Ranks: 2
Told: may take from the iterator of the loop, and `if rank == 0`
"""

import torch
import torch.distributed as dist


def stream(rank):
    for i in range(4):
        yield torch.full((2, 3), float(i + rank))


dist.init_process_group("gloo")
rank = dist.get_rank()
batches = stream(rank)
if rank == 0:
    print(next(batches).shape)  # cause  # right: print(next(stream(rank)).shape)
total = torch.zeros(3)
for x in batches:  # cause
    total += x.sum(0)
    dist.all_reduce(total)
dist.barrier()
dist.destroy_process_group()
