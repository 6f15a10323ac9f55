"""A lock in the store is taken by a rank that returns without giving it back.

Ranks: 2
Told: asks again and again in `while store.add('taken', 1) != 1`
"""

import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
store = dist.PrefixStore("lock", dist.distributed_c10d._get_default_store())


def build(found):
    while store.add("taken", 1) != 1:  # cause
        store.add("taken", -1)
        time.sleep(0.2)
    if found:  # right: if False:
        return "cached"  # cause
    store.add("taken", -1)
    return "built"


if rank == 1:
    time.sleep(0.5)
build(found=rank == 0)
dist.barrier()
dist.destroy_process_group()
