"""Batches of so many tokens, drawn with a generator that has a seed of the rank.

Ranks: 2
Told: `for batch in loader`
Told: has more turns on some ranks
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Sampler

dist.init_process_group("gloo")
rank = dist.get_rank()
LENGTHS = [3, 9, 4, 8, 2, 7, 9, 3, 6, 5, 9, 1]


class TokenBatches(Sampler):
    def __init__(self, budget, seed):
        self.budget, self.seed = budget, seed

    def __iter__(self):
        order = torch.randperm(
            len(LENGTHS), generator=torch.Generator().manual_seed(self.seed)
        ).tolist()
        batch, tokens = [], 0
        for i in order:
            if tokens + LENGTHS[i] > self.budget:
                yield batch
                batch, tokens = [], 0
            batch.append(i)
            tokens += LENGTHS[i]
        yield batch


data = [torch.ones(4) for _ in LENGTHS]
seed = [1, 3][rank]  # right: seed = 1
loader = DataLoader(data, batch_sampler=TokenBatches(14, seed))  # cause
model = DDP(nn.Linear(4, 1))
for epoch in range(2):
    for batch in loader:  # cause
        model(batch).mean().backward()
    dist.barrier()
dist.destroy_process_group()
