"""The width of rank 1's batches is another one than that of its layer, which raises far from there.

Ranks: 2
Told: uses is chosen by rank: `width = 4 if rank == 0 else 5`
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
width = 4 if rank == 0 else 5  # cause # right: width = 4
layer = nn.Linear(4, 2)
if rank == 0:
    print("begins")
batch = torch.randn(2, width)
loss = layer(batch).sum()
dist.all_reduce(loss)
dist.destroy_process_group()
