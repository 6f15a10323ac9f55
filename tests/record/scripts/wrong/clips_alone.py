"""Rank 0 clips its gradients once, the others in each step.

Finds: call_mismatch
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
fully_shard(net, mesh=mesh)
opt = torch.optim.AdamW(net.parameters())
for i in range(3):
    net(torch.randn(4, 8)).sum().backward()  # here
    if rank or i < 1:
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # here
    opt.step()
    opt.zero_grad()
dist.barrier()  # here
dist.destroy_process_group()
