"""A rank sends a message that the other one receives only in some steps.

Ranks: 2
Told: rank 1 does not go into `if step != 1`
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
big = torch.ones(5_000_000)
for step in range(3):
    if rank == 0:
        dist.send(big, 1)  # cause
    elif step != 1:  # cause  # right: else:
        dist.recv(big, 0)
dist.barrier()
dist.destroy_process_group()
