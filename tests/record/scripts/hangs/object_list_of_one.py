"""Rank 0 sends a list of two objects, the others take one.

Ranks: 2
Told: as many objects on every rank
"""

import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
objects: list[object] = [None]  # right: objects = [None, None]
if rank == 0:
    objects = ["config", "vocabulary"]
dist.broadcast_object_list(objects, src=0)  # cause
dist.barrier()
dist.destroy_process_group()
