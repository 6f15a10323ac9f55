"""One row of the data is broken: the norm is NaN on all ranks, and all of them leave the step out."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = DDP(nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1)))
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
data = torch.randn(40, 5)
data[21, 2] = float("nan")
for step in range(5):
    x = data[step * 8 : step * 8 + 8][rank::world]
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    opt.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    if torch.isfinite(norm):
        opt.step()
dist.destroy_process_group()
