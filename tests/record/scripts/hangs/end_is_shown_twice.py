"""A rank that sees the end of another's data leaves its loop, and shows it once more.

Ranks: 2
Told: rank 0 shows by `is_over(1)`
Told: rank 1 sees it in `if is_over(0)`
Told: fix: put `is_over(1)`
"""

import torch
import torch.distributed as dist


def is_over(flag):
    value = torch.tensor(flag)
    dist.all_reduce(value)
    return value.item() > 0


def epoch(rank):
    total = torch.zeros(2)
    for row in range(2 + rank):
        if is_over(0):
            break
        total += row
        dist.all_reduce(total)
    # nothing is left  # right: else:
    is_over(1)  # cause  # right:     is_over(1)
    return total


dist.init_process_group("gloo")
for _ in range(2):
    mean = epoch(dist.get_rank())
    dist.all_reduce(mean)
dist.destroy_process_group()
