"""Rank 0 alone prepares what the others wait for, longer than the timeout of their group.

Ranks: 2
Told: timeout_too_short
Told: is true on rank 0 alone: `rows = download()` (slow_under_an_if.py
"""

import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=3))


def download():
    time.sleep(7)  # right: time.sleep(0.1)
    return [1, 2, 3]


if dist.get_rank() == 0:
    rows = download()  # cause
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
