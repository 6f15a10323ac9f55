"""Two ranks use the same two groups in another order.

Ranks: 2
Told: `if rank == 0`
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
data = dist.new_group([0, 1])  # cause
model = dist.new_group([0, 1])
x, y = torch.ones(4), torch.ones(4)
if rank == 0:  # cause # right: if rank >= 0:
    dist.all_reduce(x, group=data)
    dist.all_reduce(y, group=model)
else:
    dist.all_reduce(y, group=model)
    dist.all_reduce(x, group=data)
dist.barrier()
dist.destroy_process_group()
