"""`new_group` is called by the members alone.

Ranks: 3
Told: new_group
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
group = None
if rank < 2:  # right: if True:
    group = dist.new_group([0, 1])  # cause
if rank < 2:
    dist.all_reduce(torch.ones(2), group=group)
dist.barrier()
dist.destroy_process_group()
