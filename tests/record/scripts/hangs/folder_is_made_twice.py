"""Every rank makes the folder where it is not there; one is late.

Ranks: 2
Told: pass `exist_ok=True`
"""

import os
import tempfile
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
where = os.path.join(tempfile.gettempdir(), f"run-{os.environ['MASTER_PORT']}", "logs")
if not os.path.exists(where):  # cause
    time.sleep(0.5 + rank * 0.3)  # asks a server for the name of the run
    os.makedirs(where)  # cause  # right: os.makedirs(where, exist_ok=True)
x = torch.ones(2)
dist.all_reduce(x)
dist.barrier()
if rank == 0:
    os.rmdir(where)
dist.destroy_process_group()
