"""Gradients are synchronized in a last micro step that ranks of other parts have elsewhere.

Ranks: 2
Told: the loader made at boundary_of_own_part.py:
Told: has 5 batches on rank 0, 4 batches on rank 1
Told: and that from `start = rank * size`
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


class Part(torch.utils.data.Dataset):
    def __init__(self, total, rank, world):
        size = -(-total // world)
        start = rank * size  # cause
        self.rows = range(start, min(start + size, total))  # right: self.rows = range(size)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return torch.ones(3) * self.rows[index]


def step(model, batch, sync):
    model.require_backward_grad_sync = sync
    model(batch).mean().backward()


dist.init_process_group("gloo")
loader = DataLoader(Part(9, dist.get_rank(), dist.get_world_size()), batch_size=1)
model = DistributedDataParallel(nn.Linear(3, 1))
for epoch in range(2):
    for i, batch in enumerate(loader):
        step(model, batch, i + 1 == len(loader) or (i + 1) % 2 == 0)
dist.barrier()
dist.destroy_process_group()
