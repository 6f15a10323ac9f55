"""The lengths of files are gathered in a comprehension over the rank's own files.

Ranks: 2
Told: has more turns on some ranks: rank 0 3 times, rank 1 twice
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
files = [f"part-{i}" for i in range(5)]
mine = files[rank::2]  # right: mine = files[rank:4:2]


def longest(name):
    length = torch.tensor([len(name)])
    dist.all_reduce(length, op=dist.ReduceOp.MAX)
    return length.item()


widths = [longest(name) for name in mine]  # cause
total = torch.tensor([float(sum(widths))])
dist.all_reduce(total)
dist.barrier()
dist.destroy_process_group()
