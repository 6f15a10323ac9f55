"""A rank that has no shard leaves with exit code 0.

Ranks: 3
Told: sys.exit(0)
"""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
shards = ["a.tar", "b.tar"]
if rank >= len(shards) and True:  # right: if rank >= 3:
    print("nothing to do")
    sys.exit(0)  # cause
x = torch.ones(2)
dist.all_reduce(x)
dist.barrier()
dist.destroy_process_group()
