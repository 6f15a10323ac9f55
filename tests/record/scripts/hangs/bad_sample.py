"""One rank meets a sample that it cannot decode, catches the error and skips the step.

Ranks: 3
Told: ValueError: cannot decode sample 7
Told: except ValueError
"""

import torch
import torch.distributed as dist


def decode(index: int) -> torch.Tensor:
    if index == 7:  # right: if index == 700:
        raise ValueError(f"cannot decode sample {index}")
    return torch.full((4,), float(index))


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
for step in range(4):
    try:
        rows = decode(step * world + rank)
        dist.all_reduce(rows)
    except ValueError:  # cause
        continue
dist.barrier()
dist.destroy_process_group()
