"""Rank 0 sleeps for a while, and the others are at a barrier: right, only slow."""

import os
import time

import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    time.sleep(float(os.environ.get("SLEEP", "4")))
dist.barrier()
dist.destroy_process_group()
