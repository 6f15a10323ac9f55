"""A decorator tries again what failed, and the function had already communicated.

Ranks: 2
Told: rank 0 catches ConnectionError
"""

import functools
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
attempts = 0


def retry(function):
    @functools.wraps(function)
    def wrapper(*args):
        for _ in range(3):  # cause
            try:
                return function(*args)  # cause
            except ConnectionError:  # cause
                pass
        raise RuntimeError("gave up")

    return wrapper


@retry
def upload(metrics):
    global attempts
    dist.all_reduce(metrics)
    attempts += 1
    if rank == 0 and attempts == 2:
        raise ConnectionError("503 Service Unavailable")  # cause  # right: pass
    return metrics


for epoch in range(3):
    upload(torch.ones(2))
    names = [None, None]
    dist.all_gather_object(names, epoch)
dist.destroy_process_group()
