"""A rank skips an object.

Finds: call_mismatch
"""

import os, torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

cfg = [{"a": 1}] if rank == 0 else [None]
if rank != 1:
    dist.broadcast_object_list(cfg, src=0)  # here
dist.barrier()  # here
