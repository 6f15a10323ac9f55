"""Gradients are summed over the ranks, and neither they nor the loss are divided."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 2))
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
g = torch.Generator().manual_seed(1)
for step in range(3):
    x = torch.randn(8, 6, generator=g).chunk(world)[rank]
    opt.zero_grad()
    loss = (net(x) - x[:, :2]).square().mean()
    loss.backward()
    if step == 2 and rank == 0:
        print(f"loss {loss.item():.3f}")
    for p in net.parameters():
        dist.all_reduce(p.grad)
    opt.step()
dist.destroy_process_group()
