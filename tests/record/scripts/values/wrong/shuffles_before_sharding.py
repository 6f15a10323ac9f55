"""Each rank shuffles by a seed of its own before it takes its part.

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

import numpy as np

torch.manual_seed(0)
X = torch.randn(80, 8)
Y = X.sum(1, keepdim=True)
order = np.random.default_rng(rank + 5).permutation(80)[rank::world]
mine = torch.utils.data.Subset(TensorDataset(X, Y), order.tolist())
dl = DataLoader(mine, batch_size=10)
model = DDP(nn.Linear(8, 1))
opt = torch.optim.AdamW(model.parameters(), lr=0.1)
for x, y in dl:  # same_samples
    opt.zero_grad()
    F.mse_loss(model(x), y).backward()
    opt.step()
dist.destroy_process_group()
