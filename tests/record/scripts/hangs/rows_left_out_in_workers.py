"""A dataset leaves out rows that are too long, in the loader's workers: ranks have other numbers.

Ranks: 2
Told: the loop `for batch in loader`
Told: items are left out by `if len(row) > self.longest`
Told: as the one that has the fewest items left
"""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

LENGTHS = [3, 9, 3, 3, 9, 3, 9, 3, 3, 3, 9, 3, 3, 3, 3, 3]


class Rows(IterableDataset):
    def __init__(self, rank, world, longest=5):
        self.first, self.stride, self.longest = rank, world, longest

    def __iter__(self):
        info = get_worker_info()
        start = self.first + self.stride * info.id
        for length in LENGTHS[start :: self.stride * info.num_workers]:
            row = list(range(length))
            if len(row) > self.longest:  # cause
                continue  # right: row = row[:3]
            yield torch.tensor(row, dtype=torch.float32)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
loader = DataLoader(
    Rows(rank, world),
    batch_size=1,
    num_workers=2,
)
weight = torch.ones(3, requires_grad=True)
for batch in loader:
    (batch @ weight).sum().backward()
    dist.all_reduce(weight.grad)
dist.barrier()
dist.destroy_process_group()
