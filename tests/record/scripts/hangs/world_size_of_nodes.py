"""The world size counts one rank more than there are.

Ranks: 2
Told: rank 2 was never started
"""

import os

import torch.distributed as dist

rank = int(os.environ["RANK"])
world = int(os.environ["WORLD_SIZE"]) + 1  # right: world = int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", rank=rank, world_size=world)  # cause
dist.barrier()
dist.destroy_process_group()
