"""A rank raises, and what it sums in `finally` meets a sum of the loop.

Finds: shape_mismatch
Told: handles RuntimeError: bad batch
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
metrics = torch.zeros(2)
try:
    for i in range(3):
        if rank == 2 and i == 1:
            raise RuntimeError("bad batch")
        dist.all_reduce(torch.ones(16))  # here
finally:
    dist.all_reduce(metrics)  # here
dist.destroy_process_group()
