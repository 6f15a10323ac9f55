"""Rank 1 computes in half precision.

Ranks: 2
Told: dtype_mismatch
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
half = rank == 1  # right: half = False
x = torch.ones(4, dtype=torch.float16 if half else torch.float32)
dist.all_reduce(x)  # cause
dist.barrier()
dist.destroy_process_group()
