"""Ranks average with a partner that each of them draws for itself, and make other groups.

Ranks: 4
Told: the members are `pair.tolist()`, which come from `order = torch.randperm(world)`
Told: each rank draws them for itself
Told: gives each of them its own seed
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(7 + rank)  # cause  # right: torch.manual_seed(7)
order = torch.randperm(world)  # cause
own = None
for pair in order.view(2, 2):
    group = dist.new_group(pair.tolist())
    if rank in pair.tolist():
        own = group
weight = torch.ones(3) * rank
dist.all_reduce(weight, group=own)
dist.barrier()
dist.destroy_process_group()
