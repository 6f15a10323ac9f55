"""A hook sums each gradient as a backward pass leaves it, with what it has summed before.

Found: sum_of_replicas
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 2))


def reduce(p):
    dist.all_reduce(p.grad)  # sum_of_replicas


for parameter in net.parameters():
    parameter.register_post_accumulate_grad_hook(reduce)
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
g = torch.Generator().manual_seed(1)
for step in range(3):
    opt.zero_grad()
    for micro in range(2):
        x = torch.randn(8, 6, generator=g).chunk(world)[rank]
        ((net(x) - x[:, :2]).square().mean() / 2).backward()
    for parameter in net.parameters():
        parameter.grad /= world
    opt.step()
dist.destroy_process_group()
