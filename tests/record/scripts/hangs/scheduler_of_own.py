"""Each rank decides by its own loss whether it evaluates.

Ranks: 2
Told: loss < best
"""

import torch
import torch.distributed as dist


def evaluate() -> float:
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


dist.init_process_group("gloo")
rank = dist.get_rank()
best = 10.0
for step in range(4):
    gradient = torch.ones(1)
    dist.all_reduce(gradient)
    loss = 9.0 - step if rank == 0 else 9.0 - step * (step != 2)  # right: loss = 9.0 - step
    if loss < best:  # cause
        best = loss
        evaluate()
dist.barrier()
dist.destroy_process_group()
