"""Rank 0 does what is slow in a function of its own, and comes to its barrier under an `if`.

Ranks: 2
Told: timeout_too_short
Told: `if rank == 0` (slow_before_its_barrier.py:19) is true on rank 0 alone: `time.sleep(6.0)`
"""

import datetime
import time

import torch
import torch.distributed as dist

SHORT = datetime.timedelta(seconds=3)


def unpack(rank):
    count = 0
    if rank == 0:
        time.sleep(6.0)  # cause # right: time.sleep(0.1)
        count += 1
    return count


def prepare(rank, control):
    if rank > 0:
        dist.barrier(group=control)
    count = unpack(rank)
    if rank == 0:
        dist.barrier(group=control)
    return count


def main():
    dist.init_process_group("gloo")
    control = dist.new_group(timeout=SHORT)
    prepare(dist.get_rank(), control)
    dist.all_reduce(torch.ones(2))
    dist.destroy_process_group()


main()
