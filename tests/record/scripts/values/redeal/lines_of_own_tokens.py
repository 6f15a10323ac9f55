"""The same, by an iterable dataset."""

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

V = 11


class Text(IterableDataset):
    def __iter__(self):
        g = torch.Generator().manual_seed(3)
        for i in range(64):
            ids = torch.randint(1, V, (12,), generator=g)
            n = int(torch.randint(2, 12, (1,), generator=g))
            y = ids.roll(-1)
            y[n:] = -100
            if i % world == rank:
                yield ids, y


torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Embedding(V, 16), nn.Linear(16, V)))
opt = torch.optim.SGD(model.parameters(), lr=0.5)
for ids, y in DataLoader(Text(), batch_size=4):
    out = model(ids).flatten(0, 1)
    loss = F.cross_entropy(out, y.flatten(), ignore_index=-100)  # depends_on_dealing
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
