"""A barrier by hand counts in one key of the store, and its second round never ends.

Ranks: 2
Told: all ranks count up the key `ready` of the store
Told: in the round before it was that, and now it is more
Told: fix: give each round its own key
"""

import time

import torch
import torch.distributed as dist


def meet(store, world, name):
    store.add(name, 1)
    while int(store.get(name)) != world:  # cause
        time.sleep(0.02)


dist.init_process_group("gloo")
store = dist.distributed_c10d._get_default_store()
for step in range(3):
    name = "ready"  # right: name = f"ready/{step}"
    meet(store, dist.get_world_size(), name)
    dist.all_reduce(torch.ones(2))
dist.destroy_process_group()
