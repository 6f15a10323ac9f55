"""A halo exchange without a period: the last rank receives from a right neighbour that it has not.

Ranks: 3
Told: rank 2 makes this message at
"""

import torch
import torch.distributed as dist
from torch.distributed import P2POp


def exchange(field: torch.Tensor) -> torch.Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    left, right = torch.zeros(1), torch.zeros(1)
    ops = []
    if rank > 0:
        ops.append(P2POp(dist.isend, field[:1].clone(), rank - 1))
        ops.append(P2POp(dist.irecv, left, rank - 1))
    if rank < world - 1:
        ops.append(P2POp(dist.isend, field[-1:].clone(), rank + 1))
    if rank <= world - 1:  # cause # right: if rank < world - 1:
        ops.append(P2POp(dist.irecv, right, (rank + 1) % world))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return left + right


dist.init_process_group("gloo")
grid = torch.full((6,), float(dist.get_rank()))
for _ in range(2):
    grid += exchange(grid).sum()
dist.destroy_process_group()
