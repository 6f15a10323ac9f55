"""A monitored barrier gives the slowest rank two seconds."""

from datetime import timedelta

import torch.distributed as dist

dist.init_process_group("gloo")
dist.monitored_barrier(timeout=timedelta(seconds=2))
dist.destroy_process_group()
