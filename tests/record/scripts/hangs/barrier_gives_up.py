"""A barrier by hand, in the store, is used again, and gives up by its own limit.

Ranks: 2
Told: all ranks count up the key `meet/saved` of the store
Told: fix: give each round its own key
"""

import time

import torch
import torch.distributed as dist


def meet(name, seconds=3):
    store, world = dist.distributed_c10d._get_default_store(), dist.get_world_size()
    store.add(f"meet/{name}", 1)
    end = time.monotonic() + seconds
    while store.add(f"meet/{name}", 0) != world:  # cause
        if time.monotonic() > end:
            raise TimeoutError(f"not all ranks came to {name}")
        time.sleep(0.02)


def main():
    dist.init_process_group("gloo")
    for epoch in range(2):
        total = torch.ones(2)
        dist.all_reduce(total)
        meet("saved")  # right: meet(f"saved {epoch}")
    dist.destroy_process_group()


main()
