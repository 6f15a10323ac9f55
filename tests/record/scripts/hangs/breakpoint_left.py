"""A breakpoint was left in for rank 0, and a job has no terminal.

Ranks: 2
Told: `breakpoint()`
Told: waits for a person, and has no terminal
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(3):
    loss = torch.tensor([1.0 / (step + 1)])
    if step == 1 and rank == 0:
        breakpoint()  # cause  # right: pass
    dist.all_reduce(loss)
dist.destroy_process_group()
