"""A bad sample raises within a suppress, and the gather after it in the same block is left out.

Ranks: 3
Told: rank 1 catches ValueError: could not convert string to float: 'n/a'
"""

import contextlib
import torch
import torch.distributed as dist


def parse(line):
    return float(line)  # cause


dist.init_process_group("gloo")
rank = dist.get_rank()
third = "n/a" if rank == 1 else "3.5"  # right: third = "3.5"
lines = ["1.5", "2.5", third, "4"]
scores = []
for line in lines:
    with contextlib.suppress(ValueError):  # cause
        value = torch.tensor([parse(line)])  # cause
        dist.all_reduce(value)
        scores.append(value)
dist.barrier()
dist.destroy_process_group()
