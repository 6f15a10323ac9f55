"""Sequence parallelism around a tensor-parallel block."""

import os, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import *
from torch.distributed.tensor import Shard, Replicate

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

mesh = init_device_mesh("cpu", (world,))


class B(nn.Module):
    def __init__(s):
        super().__init__()
        s.norm = nn.LayerNorm(16)
        s.up = nn.Linear(16, 32)
        s.down = nn.Linear(32, 16)

    def forward(s, x):
        return s.down(torch.relu(s.up(s.norm(x))))


net = B()
parallelize_module(
    net,
    mesh,
    {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    },
)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(3):
    y = net(torch.randn(2, 4, 16))
    y.sum().backward()
    opt.step()
    opt.zero_grad()
dist.destroy_process_group()
