"""Each rank expects parts of the size that it sends itself.

Ranks: 2
Told: what is expected is `taken`, which is set by
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
given = [rank + 1] * world
taken = [rank + 1] * world  # cause # right: taken = [other + 1 for other in range(world)]
tokens = torch.empty(sum(taken), 4)
dist.all_to_all_single(tokens, torch.ones(sum(given), 4), taken, given)
dist.destroy_process_group()
