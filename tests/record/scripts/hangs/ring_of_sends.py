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
following = (rank + 1) % world
for _ in range(world - 1):
    dist.send(block, following)  # cause # right: sending = dist.isend(block, following)
    dist.recv(other, (rank - 1) % world)
    block = block.clone()  # right: sending.wait()
    block, other = other, block
dist.destroy_process_group()
