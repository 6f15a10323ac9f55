"""DDP with a static graph and many buckets."""

import os, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

net = DDP(
    nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)]),
    bucket_cap_mb=0.02,
    static_graph=True,
    gradient_as_bucket_view=True,
)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(4):
    net(torch.randn(2, 64)).sum().backward()
    opt.step()
    opt.zero_grad()
dist.destroy_process_group()
