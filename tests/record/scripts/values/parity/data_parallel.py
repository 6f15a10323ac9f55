"""Data parallelism over rows in strides; its argument is a mistake."""

import sys, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

how = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
if how == "unlike":
    torch.manual_seed(world)
middle = {"norm": nn.BatchNorm1d(8), "drop": nn.Dropout(0.5)}.get(how, nn.Tanh())
net = nn.Sequential(nn.Linear(8, 8), middle, nn.Linear(8, 1))
model = DDP(net)
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
sched = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
g = torch.Generator().manual_seed(1)
for step in range(3):
    x, y = torch.randn(16, 8, generator=g), torch.randn(16, 1, generator=g)
    mine = slice(rank, None, world)
    if how == "same":
        mine = slice(0, 16 // world)
    xs, ys = x[mine], y[mine]
    opt.zero_grad()
    loss = (model(xs) - ys).pow(2).mean()
    if how == "scaled":
        loss = loss / world
    if how == "uneven" and world > 1:
        k = 4 if rank == 0 else 12
        xs, ys = (x[:4], y[:4]) if rank == 0 else (x[4:], y[4:])
        loss = (model(xs) - ys).pow(2).mean()
    if how == "local":
        loss = (net(xs) - ys).pow(2).mean()
    loss.backward()
    opt.step()
    if how == "sched":
        for _ in range(world):
            sched.step()
dist.destroy_process_group()
