"""Rank 0 prepares the data while the others wait, longer than the group's timeout.

Ranks: 3
Told: timeout_too_short
Told: whose timeout is 3 s
"""

import datetime
import time

import torch
import torch.distributed as dist


def prepare() -> None:
    time.sleep(5)  # right: time.sleep(0.1)


dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=3))
x = torch.ones(2)
dist.all_reduce(x)
if dist.get_rank() == 0:
    prepare()
dist.barrier()  # cause
dist.all_reduce(x)
dist.destroy_process_group()
