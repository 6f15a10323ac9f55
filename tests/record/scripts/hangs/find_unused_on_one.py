"""One rank was started with --find-unused: DDP reduces one more tensor there.

Ranks: 2
Told: DDP is built with another `find_unused_parameters`
"""

import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
os.environ["FIND_UNUSED"] = "1" if rank == 0 else "0"  # right: os.environ["FIND_UNUSED"] = "0"
find_unused = os.environ["FIND_UNUSED"] == "1"
model = DDP(nn.Linear(4, 4), find_unused_parameters=find_unused)  # cause
opt = torch.optim.SGD(model.parameters(), 0.1)
for step in range(2):
    opt.zero_grad()
    model(torch.ones(2, 4)).mean().backward()  # cause
    opt.step()
dist.barrier()
dist.destroy_process_group()
