"""Every rank sends to the next one first, and then receives.

Ranks: 3
Told: circular_wait
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
block = torch.full((1 << 20,), float(rank))
other = torch.empty_like(block)
for _ in range(world - 1):
    dist.send(
        block, (rank + 1) % world
    )  # cause # right: sending = dist.isend(block, (rank + 1) % world)
    dist.recv(other, (rank - 1) % world)
    block = block.clone()  # right: sending.wait()
    block, other = other, block
dist.destroy_process_group()
