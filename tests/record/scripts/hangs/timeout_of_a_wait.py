"""A wait for an asynchronous call passes a timeout, and rank 0 writes its checkpoint for longer.

Ranks: 2
Told: rank 0 comes too late
Told: whose timeout is 1.5 s
"""

import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
total = torch.ones(2)
for step in range(1, 3):
    work = dist.all_reduce(total, async_op=True)
    work.wait(timedelta(seconds=60))
    if step == 2 and rank == 0:
        time.sleep(5)  # right: print("saved", flush=True)
    work = dist.all_reduce(total, async_op=True)
    work.wait(timedelta(seconds=1.5))  # cause
dist.barrier()
dist.destroy_process_group()
