"""The rank that hosts a store returns, and lets go of it, while another one still asks it.

Ranks: 2
Told: the store is made at
Told: the rank that hosts it, by `is_master=rank == 0`, has let it go
"""

import os
import time

import torch.distributed as dist


def count(rank: int) -> int:
    store = dist.TCPStore(  # cause
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 7, 2, is_master=rank == 0
    )
    done = 0
    while (number := store.add("next", 1)) <= 6:
        time.sleep(0.02 if rank == 0 else 1.5)
        done += number
    # no shard is left  # right: dist.barrier()
    return done


dist.init_process_group("gloo")
sums = [None] * dist.get_world_size()
dist.all_gather_object(sums, count(dist.get_rank()))
dist.destroy_process_group()
