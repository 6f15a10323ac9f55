"""A rank whose own gradient is too large leaves a step out.

Found: replicas_differ
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(21)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
scale = 2.0**12
x, y = torch.randn(6, 12, 8), torch.randn(6, 12, 1)
x[2, 0] *= 300.0
for step in range(6):
    xs, ys = x[step].chunk(world)[rank], y[step].chunk(world)[rank]
    loss = F.mse_loss(net(xs), ys)
    opt.zero_grad()
    (loss * scale).backward()
    finite = torch.tensor(float(all((p.grad.abs() < 65504.0).all() for p in net.parameters())))
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world * scale
    if finite:
        opt.step()  # replicas_differ
    else:
        scale /= 2
print(rank, scale)
dist.destroy_process_group()
