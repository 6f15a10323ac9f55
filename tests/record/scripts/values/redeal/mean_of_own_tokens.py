"""The loss is the mean of a rank's own tokens, and ranks have other numbers of them."""

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
V = 11
ids = torch.randint(1, V, (48, 12))
lengths = torch.randint(2, 12, (48,))
target = ids.roll(-1, 1).masked_fill(torch.arange(12)[None] >= lengths[:, None], -100)
ds = TensorDataset(ids, target)
dl = DataLoader(ds, batch_size=8 // world, sampler=DistributedSampler(ds, shuffle=False))
model = DDP(nn.Sequential(nn.Embedding(V, 16), nn.Linear(16, V)))
opt = torch.optim.SGD(model.parameters(), lr=0.5)
for x, y in dl:
    out = model(x).flatten(0, 1)
    loss = F.cross_entropy(out, y.flatten(), ignore_index=-100)  # depends_on_dealing
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
