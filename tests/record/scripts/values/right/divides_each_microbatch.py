"""Gradients are averaged over the ranks after each microbatch: divided before they are summed."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 2))
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
g = torch.Generator().manual_seed(1)
for step in range(3):
    opt.zero_grad()
    for micro in range(2):
        x = torch.randn(8, 6, generator=g).chunk(world)[rank]
        loss = (net(x) - x[:, :2]).square().mean() / 2
        loss.backward()
        for p in net.parameters():
            p.grad /= world
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
    opt.step()
dist.destroy_process_group()
