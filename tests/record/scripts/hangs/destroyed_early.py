"""Rank 0 destroys the group while the others still use it.

Ranks: 3
Told: rank 0
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.ones(3)
dist.all_reduce(x)
if rank == 0:  # cause # right: if rank == 700:
    dist.destroy_process_group()
if dist.is_initialized():
    dist.all_reduce(x)
    dist.barrier()
    dist.destroy_process_group()
