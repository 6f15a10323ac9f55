"""A rank skips a monitored barrier.

Finds: call_mismatch
"""

import os, torch
import torch.distributed as dist
from torch import nn
from datetime import timedelta
import time

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

if rank != 2:
    dist.monitored_barrier(timeout=timedelta(seconds=5))  # here
dist.all_reduce(torch.ones(3))  # here
dist.destroy_process_group()
