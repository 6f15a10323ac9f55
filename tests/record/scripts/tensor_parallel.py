"""A tensor-parallel MLP; with TP=k, fully sharded over the other dimension of the mesh."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

dist.init_process_group("gloo")
world = dist.get_world_size()
tp = int(os.environ.get("TP", world))
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
if tp == world:
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
else:
    mesh = init_device_mesh("cpu", (world // tp, tp), mesh_dim_names=("dp", "tp"))
parallelize_module(net, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
if tp != world:
    fully_shard(net, mesh=mesh["dp"])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    net(torch.randn(4, 16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
