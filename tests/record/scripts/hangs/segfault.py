"""A library in C ends a rank with a segmentation fault.

Ranks: 3
Told: dies by SIGSEGV at segfault.py:
"""

import ctypes

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def decode(i):
    if i == 2 and rank == 2:
        ctypes.string_at(0)  # cause  # right: pass
    return torch.ones(2)


for step in range(4):
    x = decode(step)  # cause
    dist.all_reduce(x)
dist.destroy_process_group()
