"""DDP has the body; the head's gradients are reduced by nothing.

Found: gradients_differ
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
body = DDP(nn.Sequential(nn.Linear(8, 16), nn.Tanh()))
head = nn.Linear(16, 1)
opt = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=0.01)
g = torch.Generator().manual_seed(1)
for step in range(4):
    x = torch.randn(16, 8, generator=g).chunk(world)[rank]
    loss = head(body(x)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()  # gradients_differ
dist.destroy_process_group()
