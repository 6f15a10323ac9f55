"""A rank returns early.

Finds: missing_participant
"""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def train():
    for i in range(4):
        if rank == 3 and i == 2:
            return
        dist.all_reduce(torch.ones(2))  # here


train()
dist.destroy_process_group()
