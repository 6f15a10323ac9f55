"""Rank 1 waits in the store for a key that rank 0 never sets.

Ranks: 2
Told: outside of any call
"""

import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
store = dist.distributed_c10d._get_default_store()
if rank == 0:
    store.set("address", "10.0.0.1:4000")
else:
    store.get("adress")  # cause # right: store.get("address")
dist.barrier()
dist.destroy_process_group()
