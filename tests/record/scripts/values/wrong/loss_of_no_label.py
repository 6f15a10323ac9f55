"""A masked loss is divided by the rank's own count of labels: a rank without labels has no number.

Found: first_nan
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
g = torch.Generator().manual_seed(1)
for step in range(4):
    x = torch.randn(8, 6, generator=g)
    mask = torch.tensor([1.0, 1, 1, 1, 0, 0, 0, 0]) if step == 1 else torch.ones(8)
    x, mask = x.chunk(world)[rank], mask.chunk(world)[rank]
    opt.zero_grad()
    loss = (net(x).square()[:, 0] * mask).sum() / mask.sum()
    loss.backward()  # first_nan
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
dist.destroy_process_group()
