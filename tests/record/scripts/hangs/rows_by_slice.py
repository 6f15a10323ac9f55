"""Rows are dealt by a slice, so that ranks have other numbers of batches.

Ranks: 2
Told: which depends on `mine = rows[rank::world]` (rows_by_slice.py:14)
"""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
rows = torch.arange(26.0).reshape(13, 2)
mine = rows[rank::world]  # cause # right: mine = rows[:12][rank::world]
loader = DataLoader(mine, batch_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
for batch in loader:
    model(batch).mean().backward()
dist.barrier()
dist.destroy_process_group()
