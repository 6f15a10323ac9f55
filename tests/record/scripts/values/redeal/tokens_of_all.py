"""The loss is divided by the tokens of all ranks; there is no loader."""

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
model = DDP(nn.Sequential(nn.Embedding(V, 16), nn.Linear(16, V)))
opt = torch.optim.SGD(model.parameters(), lr=0.5)
g = torch.Generator().manual_seed(1)
for step in range(3):
    ids = torch.randint(1, V, (8, 12), generator=g)
    lengths = torch.randint(2, 12, (8,), generator=g)
    target = ids.roll(-1, 1).masked_fill(torch.arange(12)[None] >= lengths[:, None], -100)
    ids, target = ids.chunk(world)[rank], target.chunk(world)[rank]  # batch
    n = (target != -100).sum()
    dist.all_reduce(n)
    loss = F.cross_entropy(
        model(ids).view(-1, V), target.reshape(-1), ignore_index=-100, reduction="sum"
    )
    opt.zero_grad()
    (loss * world / n).backward()
    opt.step()
dist.destroy_process_group()
