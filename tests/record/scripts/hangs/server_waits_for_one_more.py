"""A parameter server receives once for each rank, itself too.

Ranks: 3
Told: receives from anyone
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
grad = torch.ones(4)


def serve():
    total = torch.zeros(4)
    for _ in range(n):  # cause  # right: for _ in range(n - 1):
        got = torch.empty(4)
        dist.recv(got)  # cause
        total += got
    return total


if rank == 0:
    weights = serve()
else:
    dist.send(grad, 0)
    weights = torch.empty(4)
dist.broadcast(weights, 0)
dist.destroy_process_group()
