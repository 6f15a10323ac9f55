"""The sampler's seed is the rank, so that the parts overlap.

Found: same_samples
Says: shuffle the same way on all ranks
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

torch.manual_seed(0)
ds = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
sampler = DistributedSampler(ds, seed=rank)
dl = DataLoader(ds, batch_size=12, sampler=sampler)
model = DDP(nn.Linear(8, 1))
opt = torch.optim.AdamW(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in dl:  # same_samples
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        opt.step()
dist.destroy_process_group()
