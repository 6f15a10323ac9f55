"""Ranks count themselves in the store and poll, and one of them never counts.

Ranks: 3
Told: `if shards`
"""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
store = dist.distributed_c10d._get_default_store()


def soft_barrier(name):
    store.add(name, 1)
    while store.add(name, 0) < n:  # cause
        time.sleep(0.1)


shards = [2, 1, 0][rank]  # right: shards = 1
for _ in range(shards):
    torch.ones(1)
if shards:  # cause
    soft_barrier("prepared")
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
