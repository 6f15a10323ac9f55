"""Gradients are summed in one flat piece after each microbatch, with what was summed before.

Found: sum_of_replicas
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector

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
        ((net(x) - x[:, :2]).square().mean() / 2 / world).backward()
        flat = parameters_to_vector([p.grad for p in net.parameters()])
        dist.all_reduce(flat)  # sum_of_replicas
        at = 0
        for p in net.parameters():
            p.grad.copy_(flat[at : at + p.numel()].view_as(p))
            at += p.numel()
    opt.step()
dist.destroy_process_group()
