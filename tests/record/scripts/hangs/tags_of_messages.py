"""A receive names another tag than the send.

Ranks: 2
Told: tag_mismatch
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.ones(3)
for step in range(3):
    if rank == 0:
        dist.send(x, 1, tag=step)
    else:
        dist.recv(x, 0, tag=0)  # cause # right: dist.recv(x, 0, tag=step)
dist.barrier()
dist.destroy_process_group()
