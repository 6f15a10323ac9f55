"""Ranks leave a ring by their number, in other turns, and in each of two layers.

Ranks: 3
Told: under `if step > rank` (ring_left_early.py:
Told: fix: take the way out at ring_left_early.py:
"""

import torch
import torch.distributed as dist


def pass_on(block, rank, world):
    received = torch.empty_like(block)
    operations = [
        dist.P2POp(dist.isend, block, (rank + 1) % world),
        dist.P2POp(dist.irecv, received, (rank - 1) % world),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return received


def attend(block, rank, world):
    total = torch.zeros_like(block)
    for step in range(world):
        if step > rank:  # cause
            break  # right: block = block * 0
        total += block
        if step + 1 < world:
            block = pass_on(block, rank, world)
    return total


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    block = torch.full((4,), float(rank))
    for layer in range(2):
        block = attend(block, rank, world)
    norm = block.norm()
    dist.all_reduce(norm)
    dist.destroy_process_group()


main()
