"""DDP: one rank calls the model below its wrapper in a step.

Ranks: 2
Told: `if rank == 1 and step == 1`
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(4, 2))
for step in range(3):
    call = model.module if rank == 1 and step == 1 else model  # cause  # right: call = model
    call(torch.ones(2, 4)).sum().backward()
    for p in model.parameters():
        p.grad = None
losses = [None, None]
dist.all_gather_object(losses, rank)
dist.destroy_process_group()
