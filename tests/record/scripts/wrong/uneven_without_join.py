"""Uneven inputs of DDP without join.

Finds: call_mismatch
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
net = DDP(nn.Linear(4, 2))
for i in range(3 + (rank == 1)):
    net(torch.randn(4, 4)).sum().backward()  # here
dist.barrier()  # here
dist.destroy_process_group()
