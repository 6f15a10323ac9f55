"""A worker is killed, and its rank raises twice: the second error comes of the signal's handler.

Ranks: 2
Told: rank 1 raises RuntimeError: worker 7 is killed
"""

import os
import signal
import torch
import torch.distributed as dist


class Lost(Exception):
    def __str__(self):
        os.kill(os.getpid(), signal.SIGCHLD)  # as it comes while the error is looked at
        return "the connection to the worker"


def note(number, frame):
    raise RuntimeError("worker 7 is killed")


dist.init_process_group("gloo")
rank = dist.get_rank()
signal.signal(signal.SIGCHLD, note)
total = torch.zeros(2)
for at in range(3):
    if rank == 1 and at == 2:
        raise Lost  # cause  # right: pass
    dist.all_reduce(total)
dist.destroy_process_group()
