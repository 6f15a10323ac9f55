"""Rank 1 tokenizes longer than a monitored barrier waits.

Ranks: 3
Told: timeout is 2 s
"""

import time
from datetime import timedelta

import torch.distributed as dist


def tokenize(rank: int) -> int:
    if rank == 1:  # right: if rank == 7:
        time.sleep(5)  # cause
    return rank


dist.init_process_group("gloo")
tokens = tokenize(dist.get_rank())
dist.monitored_barrier(timeout=timedelta(seconds=2))  # cause
held = [None] * dist.get_world_size()
dist.all_gather_object(held, tokens)
dist.destroy_process_group()
