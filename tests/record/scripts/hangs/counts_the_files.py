"""Rank 0 waits until each rank has written its part, and one without rows writes none.

Ranks: 2
Told: rank 1 alone takes the `return`
"""

import os
import tempfile
import time

import torch.distributed as dist

ROWS = {0: ["a", "b"], 1: []}


def save(folder, rank):
    rows = ROWS[rank]
    if not rows:  # cause # right: if rows is None:
        return
    with open(os.path.join(folder, f"part-{rank}.txt"), "w") as part:
        part.write("\n".join(rows))


dist.init_process_group("gloo")
rank = dist.get_rank()
box = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(box, src=0)
save(box[0], rank)
if rank == 0:
    while len(os.listdir(box[0])) < dist.get_world_size():
        time.sleep(0.1)
dist.barrier()
dist.destroy_process_group()
