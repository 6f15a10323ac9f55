"""Owners of layers clip each layer by its own norm, as one process does."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
layers = [m for m in net if isinstance(m, nn.Linear)]
owned = [m for i, m in enumerate(layers) if i % world == rank]
opt = torch.optim.SGD([p for m in owned for p in m.parameters()], lr=0.5, momentum=0.9)

data = torch.Generator().manual_seed(1)
for step in range(5):
    x, y = torch.randn(8, 6, generator=data), torch.randn(8, 3, generator=data)
    x, y = x.chunk(world)[rank], y.chunk(world)[rank]
    nn.functional.mse_loss(net(x), y).backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad.div_(world)
    for m in owned:
        norm = torch.cat([p.grad.flatten() for p in m.parameters()]).norm()
        for p in m.parameters():
            p.grad.mul_((0.02 / (norm + 1e-6)).clamp(max=1.0))
    opt.step()
    for i, m in enumerate(layers):
        for p in m.parameters():
            dist.broadcast(p.data, i % world)
            p.grad = None
dist.destroy_process_group()
