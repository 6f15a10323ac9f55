"""The rank is read from a variable that this launcher does not set.

Ranks: 2
Told: two processes say that they are rank 0
"""

import os

import torch.distributed as dist

rank = int(os.environ.get("SLURM_PROCID", 0))  # right: rank = int(os.environ["RANK"])
dist.init_process_group("gloo", rank=rank, world_size=int(os.environ["WORLD_SIZE"]))  # cause
dist.barrier()
dist.destroy_process_group()
