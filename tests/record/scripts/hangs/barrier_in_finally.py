"""A rank that fails still waits for the others in its `finally`.

Ranks: 2
Told: RuntimeError: disk is full
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def save(step: int) -> None:
    if rank == 1 and step == 1:  # right: if step == 700:
        raise RuntimeError("disk is full")


try:
    for step in range(3):
        x = torch.ones(4)
        dist.all_reduce(x)
        save(step)
finally:
    dist.barrier()  # cause
    dist.destroy_process_group()
