"""The cache is written under a lock of its file, and a barrier is inside of the lock.

Ranks: 2
Told: waits for the lock on
Told: holds
"""

import fcntl
import os
import tempfile
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
path = os.path.join(tempfile.gettempdir(), f"cache-{os.environ['MASTER_PORT']}-{os.getppid()}.lock")


def prepare():
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # cause
        data = torch.arange(4)
        dist.barrier()  # cause  # right: pass
        return data


data = prepare()
dist.all_reduce(data)
if rank == 0:
    os.remove(path)
dist.destroy_process_group()
