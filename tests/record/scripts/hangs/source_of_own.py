"""Every rank names itself as the source of a broadcast.

Ranks: 3
Told: root_mismatch
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
seed = torch.tensor([rank * 1000])
dist.broadcast(seed, src=rank)  # cause # right: dist.broadcast(seed, src=0)
dist.all_reduce(seed)
dist.barrier()
dist.destroy_process_group()
