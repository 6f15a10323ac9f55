"""Rank 0 removes the temporary checkpoint which the others have yet to load.

Ranks: 2
Told: rank 0 removes it
"""

import os
import tempfile
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
path = os.path.join(tempfile.gettempdir(), f"weights-{os.environ['MASTER_PORT']}.pt")
if rank == 0:
    torch.save({"w": torch.ones(3)}, path)
dist.barrier()
if rank == 1:
    time.sleep(1)  # a slow file system
w = torch.load(path)["w"]  # cause
pass  # right: dist.barrier()
if rank == 0:
    os.remove(path)  # cause
dist.all_reduce(w)
dist.destroy_process_group()
