"""The loss is reduced to rank 0, and every rank decides by it whether this is the best.

Ranks: 2
Told: leaves the result in `loss` on one rank alone
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
best = 1.2
for epoch in range(3):
    loss = torch.tensor([1.0 - 0.1 * epoch - 0.2 * rank])
    dist.reduce(loss, dst=0)  # cause  # right: dist.all_reduce(loss)
    if loss.item() < best:  # cause
        best = loss.item()
        parts = [torch.zeros(1) for _ in range(2)]
        dist.all_gather(parts, loss)
    grad = torch.ones(3)
    dist.all_reduce(grad)
dist.destroy_process_group()
