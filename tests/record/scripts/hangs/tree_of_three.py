"""A sum along a binary tree, of three ranks: one without a partner leaves the tree, and is owed to.

Ranks: 3
Told: rank 2 alone takes the `break`
"""

import torch
import torch.distributed as dist


def add_up(value, rank, world):
    distance = 1
    while distance < world:
        partner = rank ^ distance
        if partner >= world:  # cause
            break  # right: distance *= 2; continue
        if rank & distance:
            dist.send(value, dst=partner)
            return value
        other = torch.empty_like(value)
        dist.recv(other, src=partner)
        value = value + other
        distance *= 2
    return value


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
for step in range(2):
    add_up(torch.full((4,), float(rank)), rank, world)
    dist.barrier()
dist.destroy_process_group()
