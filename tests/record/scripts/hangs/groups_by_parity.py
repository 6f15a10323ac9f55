"""Even ranks of a ring send in one group, odd ones in another: two even ones are neighbours.

Ranks: 3
Told: `if rank % 2 == 0`
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
first = dist.new_group([*range(size)])
second = dist.new_group([*range(size)])


def choose() -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    if rank % 2 == 0:  # cause # right: if True:
        return first, second  # right: return first, first
    return second, first


def shift(tensor: torch.Tensor) -> torch.Tensor:
    sends, takes = choose()
    buffer = torch.empty_like(tensor)
    sent = dist.isend(tensor, (rank + 1) % size, group=sends)
    taken = dist.irecv(buffer, (rank - 1) % size, group=takes)
    sent.wait()
    taken.wait()
    return buffer


block = torch.full((4,), float(rank))
for _ in range(2):
    for step in range(size):
        if step + 1 < size:
            block = shift(block)
    total = block.sum()
    dist.all_reduce(total)
dist.destroy_process_group()
