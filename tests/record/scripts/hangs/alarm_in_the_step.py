"""A step that takes too long is ended by an alarm and left out, on the rank that is slow.

Ranks: 2
Told: rank 1 catches TooSlow
"""

import signal
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


class TooSlow(Exception):
    pass


def on_alarm(*_):
    raise TooSlow  # cause


signal.signal(signal.SIGALRM, on_alarm)
for step in range(3):
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        if rank == 1 and step == 1:
            time.sleep(3)  # cause  # right: pass
        grad = torch.ones(4)
        signal.setitimer(signal.ITIMER_REAL, 0)
        dist.all_reduce(grad)
    except TooSlow:  # cause
        continue  # cause
dist.barrier()
dist.destroy_process_group()
