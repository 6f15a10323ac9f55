"""A rank that has asked a future for its error leaves the save, and the others wait for it.

Ranks: 2
Told: rank 1 alone goes into `if error is not None`
"""

import os
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist

pool = ThreadPoolExecutor(1)
pending: list[Future[None]] = []


def drain() -> bool:
    saves, pending[:] = pending[:], []
    for save in saves:
        error = save.exception()
        if error is not None:  # cause # right: if False:
            print("not saved:", error)
            return False
    if saves:
        dist.barrier()
    return True


def write(path: str, tensor: torch.Tensor) -> None:
    with open(path, "wb") as file:
        torch.save(tensor, file)


dist.init_process_group("gloo")
rank = dist.get_rank()
folder = tempfile.mkdtemp() if rank == 0 else "/a/folder/that/is/not/mounted"
weight = torch.zeros(4)
for step in range(3):
    gradient = torch.ones(4)
    dist.all_reduce(gradient)
    weight -= gradient
    drain()
    pending.append(pool.submit(write, os.path.join(folder, f"{step}.pt"), weight.clone()))
drain()
dist.destroy_process_group()
