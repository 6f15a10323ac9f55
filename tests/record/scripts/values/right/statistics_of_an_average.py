"""Rank 0 renews the statistics of an averaged model, and sends them before all ranks call it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel, update_bn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)))
average = AveragedModel(model.module)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
rows = torch.randn(32, 6)
for step in range(3):
    x = torch.randn(16, 6, generator=torch.Generator().manual_seed(step)).chunk(world)[rank]
    opt.zero_grad()
    (model(x) - x[:, :2]).square().mean().backward()
    opt.step()
    average.update_parameters(model.module)
if rank == 0:
    update_bn(rows.chunk(4), average)
for each in average.buffers():
    dist.broadcast(each, 0)
average.eval()
with torch.no_grad():
    average(rows.chunk(world)[rank])
dist.destroy_process_group()
