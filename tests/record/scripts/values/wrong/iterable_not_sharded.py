"""An iterable dataset that yields all rows on every rank.

Found: same_samples
"""

import os, sys, copy, math, random
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, Dataset, IterableDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


class Lines(IterableDataset):
    def __iter__(self):
        g = torch.Generator().manual_seed(3)
        for _ in range(48):
            x = torch.randn(8, generator=g)
            yield x, x[:1] * 2


torch.manual_seed(0)
dl = DataLoader(Lines(), batch_size=8)
model = DDP(nn.Linear(8, 1))
opt = torch.optim.AdamW(model.parameters(), lr=0.1)
for x, y in dl:  # same_samples
    opt.zero_grad()
    F.mse_loss(model(x), y).backward()
    opt.step()
dist.destroy_process_group()
