"""any() over a generator stops at the first hit, and the check of each tensor communicates.

Ranks: 2
Told: stops at the first that is true; turns: rank 0 6 times, rank 1 5 times
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))


def is_bad(p):
    worst = p.grad.abs().max()
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return p.grad.isnan().any().item()  # cause  # right: return worst.isnan().item()


for step in range(3):
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    model[0].weight.grad *= [[1, 1, 1], [1, float("nan"), 1]][rank][step]
    skip = any(is_bad(p) for p in model.parameters())  # cause
    model.zero_grad()
    dist.barrier()
dist.destroy_process_group()
