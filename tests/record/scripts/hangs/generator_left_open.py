"""A loader ends its epoch with a barrier after its loop; one rank has enough batches and breaks.

Ranks: 2
Told: rank 0 alone takes the `break`
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def batches(n):
    for i in range(n):
        yield torch.full((2,), float(i))
    dist.barrier()  # cause


def validate(n):
    seen = 0
    for batch in batches(n):
        seen += 1
        if seen == 3 and n > 3:  # cause  # right: if seen > 10:
            break  # cause
    return seen


sizes = [4, 3]
for epoch in range(2):
    seen = validate(sizes[rank])
    count = torch.tensor([float(seen)])
    dist.all_reduce(count)
dist.destroy_process_group()
