"""Models differ by rank."""

import os, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

net = DDP(nn.Linear(8 if rank != 1 else 9, 4))  # here
dist.destroy_process_group()
