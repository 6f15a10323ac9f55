"""Each rank trains on all rows that it has, and the weights are averaged by their number."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
count = 8 + 8 * rank
rows = torch.randn(count, 8, generator=torch.Generator().manual_seed(rank))
for turn in range(3):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in rows.split(4):
        opt.zero_grad()
        net(x).pow(2).mean().backward()
        opt.step()
    total = torch.tensor(float(count))
    dist.all_reduce(total)
    for p in net.parameters():
        p.data.mul_(count)
        dist.all_reduce(p.data)
        p.data.div_(total)
dist.destroy_process_group()
