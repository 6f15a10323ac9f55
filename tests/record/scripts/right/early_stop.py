"""Training that stops early by a loss that all ranks share."""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

for epoch in range(10):
    loss = torch.tensor([1.0 / (epoch + 1 + rank)])
    dist.all_reduce(loss)
    if loss.item() / world < 0.2:
        break
dist.destroy_process_group()
