"""A cached function communicates; what is in the cache differs by rank.

Ranks: 2
Told: the answers of `longest`
"""

import functools

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


@functools.lru_cache(None)  # cause
def longest(n):
    t = torch.tensor([n])
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return int(t)


lengths = [[3, 4, 5], [3, 3, 5]][rank]  # right: lengths = [3, 4, 5]
for n in lengths:
    m = longest(n)  # cause
    batch = torch.zeros(2, m)
    loss = batch.mean()
    dist.all_reduce(loss)
dist.destroy_process_group()
