"""Rank 0 starts the upload as a program and waits for it, and the program does not end.

Ranks: 2
Told: under which rank 0 is
"""

import subprocess
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for epoch in range(2):
    x = torch.ones(2)
    dist.all_reduce(x)
    if rank == 0 and epoch == 1:
        subprocess.run(["sleep", "300"])  # cause  # right: subprocess.run(["sleep", "1"])
    dist.barrier()
dist.destroy_process_group()
