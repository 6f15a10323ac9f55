"""DDP with uneven inputs, joined."""

import os, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.algorithms.join import Join

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

net = DDP(nn.Linear(4, 2))
with Join([net]):
    for i in range(3 + (rank == 1)):
        net(torch.randn(2, 4)).sum().backward()
dist.destroy_process_group()
