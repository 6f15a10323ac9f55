"""Rank 0 sends a list of two objects, the others take one.

Ranks: 2
Told: broadcast_object_list
"""

import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
objects = (
    ["config", "vocabulary"] if rank == 0 else [None]
)  # right: objects = ["config", "vocabulary"] if rank == 0 else [None, None]
dist.broadcast_object_list(objects, src=0)  # cause
dist.barrier()
dist.destroy_process_group()
