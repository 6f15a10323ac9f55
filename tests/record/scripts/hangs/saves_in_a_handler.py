"""SIGUSR1 comes to one rank, whose handler saves, and saving is a matter of all ranks.

Ranks: 2
Told: in `save`, which handles a signal
"""

import os
import signal

import torch
import torch.distributed as dist


def save(*_):
    dist.barrier()  # cause  # right: pass


signal.signal(signal.SIGUSR1, save)
dist.init_process_group("gloo")
rank = dist.get_rank()
g = torch.ones(4)
for step in range(4):
    dist.all_reduce(g)
    if rank == 1 and step == 1:
        os.kill(os.getpid(), signal.SIGUSR1)  # cause
dist.destroy_process_group()
