"""FullyShardedDataParallel, the first."""

import os, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

net = FSDP(
    nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)),
    auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
    device_id=torch.device("cpu"),
)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(3):
    net(torch.randn(4, 8)).sum().backward()
    opt.step()
    opt.zero_grad()
dist.destroy_process_group()
