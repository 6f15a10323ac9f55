"""FSDP2 on a small MLP: three steps with a clipped gradient."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
for layer in net:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(net, mesh=mesh)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    net(torch.randn(4, 16)).sum().backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
