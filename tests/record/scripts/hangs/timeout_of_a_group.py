"""The group of the checkpoints has a short timeout, and rank 0 gathers for longer.

Ranks: 2
Told: whose timeout is 2 s
"""

import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
ckpt = dist.new_group(timeout=timedelta(seconds=2))  # right: ckpt = dist.new_group()
x = torch.ones(4)
for step in range(2):
    dist.all_reduce(x)
    if rank == 0:
        time.sleep(5)  # cause
    dist.barrier(group=ckpt)  # cause
dist.destroy_process_group()
