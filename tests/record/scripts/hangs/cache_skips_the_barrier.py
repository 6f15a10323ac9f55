"""Rank 0 prepares the data first, and leaves the context by a return before its barrier.

Ranks: 3
Told: rank 0 alone takes the `return`
"""

import contextlib

import torch
import torch.distributed as dist

CACHE = {"train"}


@contextlib.contextmanager
def main_process_first():
    rank = dist.get_rank()
    if rank > 0:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()


def prepare(split):
    if dist.get_rank() == 0 and split in CACHE:  # cause # right: if split not in CACHE:
        return torch.zeros(8)
    with main_process_first():
        return torch.arange(8.0)


dist.init_process_group("gloo")
rows = prepare("train")
dist.all_reduce(rows)
rows = prepare("test")
dist.all_reduce(rows)
dist.destroy_process_group()
