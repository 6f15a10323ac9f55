"""The rank is read of the environment as a text, and compared with a number.

Ranks: 3
Told: is true on no rank: `os.environ['RANK']` is a text there, and never equal to the number 0
Told: fix: compare numbers: `int(os.environ['RANK'])`
"""

import os

import torch
import torch.distributed as dist


def weights(count):
    if os.environ["RANK"] == 0:  # cause # right: if os.environ["RANK"] == "0":
        found = torch.arange(count, dtype=torch.float32)
        for rank in range(1, dist.get_world_size()):
            dist.send(found, dst=rank)
    else:
        found = torch.empty(count)
        dist.recv(found, src=0)
    return found


dist.init_process_group("gloo")
weights(4)
dist.barrier()
dist.destroy_process_group()
