"""A term of the loss is computed from gathered parts alone.

Found: no_gradient_through
Says: a term of the loss is computed from what it gathers alone
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

net = DDP(nn.Linear(8, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(3):
    f = net(torch.randn(4, 8))
    parts = [torch.empty_like(f) for _ in range(world)]
    dist.all_gather(parts, f)  # no_gradient_through
    every = torch.cat(parts)
    spread = every - every.mean(0)
    loss = f.pow(2).mean() + 0.1 * (spread.T @ spread).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
