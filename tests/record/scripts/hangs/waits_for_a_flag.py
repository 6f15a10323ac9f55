"""Rank 1 looks for a file that rank 0 writes after a barrier that rank 1 never enters.

Ranks: 2
Told: outside of any call
"""

import os
import tempfile
import time

import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
flag = os.path.join(tempfile.gettempdir(), "flag-that-no-rank-writes")
if rank == 1:
    while not os.path.exists(flag) and True:  # right: while False:
        time.sleep(0.05)  # cause
dist.barrier()
dist.destroy_process_group()
