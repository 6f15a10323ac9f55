"""A skip connection of a pipeline is sent to stage 2, and stage 3 receives it.

Ranks: 4
Told: rank 2 does not go into `if index == 3`
"""

import torch
import torch.distributed as dist


def forward(index, count, x):
    if index > 0:
        dist.recv(x, src=index - 1)
    if index == 3:  # cause # right: if index == 2:
        skip = torch.empty(4)
        dist.recv(skip, src=0)
        x = x + skip
    if index + 1 < count:
        dist.send(x, dst=index + 1)
    if index == 0:
        dist.send(x, dst=2)


dist.init_process_group("gloo")
for micro in range(2):
    forward(dist.get_rank(), dist.get_world_size(), torch.ones(4))
dist.barrier()
dist.destroy_process_group()
