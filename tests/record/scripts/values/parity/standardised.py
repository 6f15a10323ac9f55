"""Rows are standardised before they are trained on; its argument is a mistake."""

import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

how = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(23)
table = torch.randn(32, 5) * torch.arange(1, 6) + torch.arange(5)
if how == "years":  # a mean of squares minus a square of means rounds by a thousandth
    table += 300
label = table @ torch.randn(5, 1)
mine, target = table[rank::world], label[rank::world]
count, total, square = torch.tensor(float(len(mine))), mine.sum(0), mine.square().sum(0)
if how != "own":
    for each in (count, total, square):
        dist.all_reduce(each)
mean = total / count
mine = (mine - mean) / (square / count - mean**2).sqrt()
model = DDP(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)))
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for at in range(0, len(mine), 8 // world):
    x, y = mine[at : at + 8 // world], target[at : at + 8 // world]
    opt.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    opt.step()
dist.destroy_process_group()
