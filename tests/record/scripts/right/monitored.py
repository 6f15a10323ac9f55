"""Monitored barriers."""

import os, torch
import torch.distributed as dist
from torch import nn
from datetime import timedelta

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

dist.monitored_barrier()
dist.all_reduce(torch.ones(3))
dist.monitored_barrier(timeout=timedelta(seconds=30))
dist.destroy_process_group()
