"""A batch is cut into micro-batches, and scattered as if there were a rank for each.

Ranks: 3
Told: it has 4 tensors, and the group has 3 ranks
"""

import torch
import torch.distributed as dist


def split(batch, count):
    return [each.contiguous() for each in batch.chunk(count)]


def main():
    dist.init_process_group("gloo")
    micro = 4  # right: micro = 3
    mine = torch.empty(12 // micro, 2)
    parts = split(torch.ones(12, 2), micro) if dist.get_rank() == 0 else None  # cause
    dist.scatter(mine, parts, src=0)
    dist.destroy_process_group()


main()
