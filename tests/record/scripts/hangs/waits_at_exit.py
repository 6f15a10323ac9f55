"""At its exit each rank waits for the others; one of them leaves by os._exit, as its CLI does.

Ranks: 2
Told: rank 1 has left by `os._exit(0)`
"""

import atexit
import os
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


@atexit.register
def flush():
    dist.barrier()  # cause
    dist.destroy_process_group()


metric = torch.tensor([float(rank)])
dist.all_reduce(metric)
if rank == 1 and metric.item() < 5:  # cause
    sys.stdout.flush()
    os._exit(0)  # cause  # right: sys.exit(0)
