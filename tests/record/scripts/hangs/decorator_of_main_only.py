"""A function that ends with a barrier by one decorator is run on rank 0 alone by another one.

Ranks: 2
Told: wraps `save` in it, which communicates
Told: put it below what communicates for `save`
"""

import functools

import torch
import torch.distributed as dist


def main_only(function):
    @functools.wraps(function)
    def wrapper(*args):
        if dist.get_rank() != 0:
            return None
        return function(*args)

    return wrapper


def synchronized(function):
    @functools.wraps(function)
    def wrapper(*args):
        result = function(*args)
        dist.barrier()
        return result

    return wrapper


@main_only  # cause  # right: @synchronized
@synchronized  # right: @main_only
def save(step):
    print("saved", step)


dist.init_process_group("gloo")
for step in range(3):
    dist.all_reduce(torch.ones(2))
    save(step)
dist.destroy_process_group()
