"""torch.compile: the step communicates in a branch of a number that differs by rank.

Ranks: 2
Told: which is compiled
"""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

dist.init_process_group("gloo")
rank = dist.get_rank()


@torch.compile(backend="eager")
def step(x, n):
    if n > 2:  # cause
        x = funcol.all_reduce(x, "sum", dist.group.WORLD)  # cause
    return x * 2


n = 3 - rank  # right: n = 3
y = step(torch.ones(2), n)  # cause
print(y.sum())
dist.barrier()
