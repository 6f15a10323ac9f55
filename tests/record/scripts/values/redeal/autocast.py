"""Data parallelism in a lower precision; TOKENS=own: a mean of each rank's own."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = DDP(nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4)))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
sampler = DistributedSampler(data, world, rank, shuffle=False)
for x, y in DataLoader(data, batch_size=8, sampler=sampler):
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(x)
    each = nn.functional.cross_entropy(out.float(), y, reduction="none")
    if os.environ.get("TOKENS") == "own":
        some = y < 2
        loss = each[some].sum() / some.sum()
    else:
        loss = each.mean()
    loss.backward()
    opt.step()
dist.destroy_process_group()
