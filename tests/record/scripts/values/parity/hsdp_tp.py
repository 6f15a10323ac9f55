"""FSDP2 over tensor parallelism: weights split along two dimensions."""

import os, sys, copy, math, random
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, Dataset, IterableDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

d = 2 if world == 4 else 1
mesh = init_device_mesh("cpu", (d, world // d), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
parallelize_module(net, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
fully_shard(net, mesh=mesh["dp"])
opt = torch.optim.SGD(net.parameters(), lr=0.01)
g = torch.Generator().manual_seed(1)
for step in range(3):
    x = torch.randn(16, 8, generator=g).chunk(d)[mesh.get_local_rank("dp")]
    opt.zero_grad()
    loss = net(x).pow(2).mean()
    loss.backward()
    opt.step()
dist.destroy_process_group()
