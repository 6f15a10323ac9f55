"""Each rank reads data of its own, shuffled by its own seed; a variable gives it a sampler, too."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
X = torch.randn(48, 8) * torch.arange(1, 49).unsqueeze(1) / 24
ds = TensorDataset(X[rank::world], X.sum(1, keepdim=True)[rank::world])
draw = torch.Generator().manual_seed(rank)
sampler = DistributedSampler(ds, shuffle=False) if os.environ.get("TWICE") else None
dl = DataLoader(ds, batch_size=4, sampler=sampler, shuffle=sampler is None, generator=draw)
model = DDP(nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 1)))
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
for x, y in dl:  # same_samples
    opt.zero_grad()
    F.mse_loss(model(x), y).backward()
    opt.step()
dist.destroy_process_group()
