"""Dropout: the masks belong to places, not to rows."""

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
X = torch.randn(48, 8) * torch.arange(1, 49).unsqueeze(1) / 24
Y = X.sum(1, keepdim=True)
ds = TensorDataset(X, Y)
sampler = DistributedSampler(ds, shuffle=True)
dl = DataLoader(ds, batch_size=4, sampler=sampler)
net = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Dropout(0.3), nn.Linear(16, 1))
model = DDP(net)
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
for epoch in range(1):
    sampler.set_epoch(epoch)
    for x, y in dl:
        opt.zero_grad()
        out = model(x)
        loss = F.mse_loss(out, y)
        loss.backward()
        opt.step()
dist.destroy_process_group()
