"""Each rank leaves the loop by its own loss, and both come to the barrier behind it.

Ranks: 2
Told: under `if loss.item() > 1.5` (stops_by_its_own_loss.py:17)
Told: take the way out at stops_by_its_own_loss.py:17 on all ranks or on none
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for epoch in range(3):
    loss = torch.tensor([1.0 + rank * epoch])
    mean = loss.clone()
    dist.all_reduce(mean)
    if loss.item() > 1.5:  # cause  # right: if mean.item() > 3.5:
        break
dist.barrier()
dist.destroy_process_group()
