"""A sampler ends a batch where its rows are too long together, each rank's by its own rows.

Ranks: 2
Told: what a batch holds ends it
Told: let every rank cut the rows of all ranks into batches
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler


class Batches(BatchSampler):
    def __init__(self, sampler: DistributedSampler, lengths: list[int], limit: int) -> None:
        super().__init__(sampler, 2, drop_last=False)
        self.lengths, self.limit = lengths, limit

    def __iter__(self):
        batch = []
        for row in self.sampler:
            full = (len(batch) + 1) * self.lengths[row] > self.limit
            if batch and full:  # cause # right: if len(batch) == 2:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch


def set_up(model, loader, use_distributed_sampler=True):
    return DDP(model), loader


dist.init_process_group("gloo")
torch.manual_seed(0)
lengths = [3, 9, 4, 12, 2, 10, 5, 11]
data = [torch.full((4,), float(length)) for length in lengths]
sampler = DistributedSampler(data, shuffle=False)
loader = DataLoader(data, batch_sampler=Batches(sampler, lengths, 16))
model, loader = set_up(nn.Linear(4, 1), loader, use_distributed_sampler=False)
for batch in loader:
    model(batch).mean().backward()
dist.barrier()
dist.destroy_process_group()
