"""One rank throws a gradient away after it is reduced.

Found: gradients_differ
Says: rank 1 writes into them since, rank 0 not
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

net = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(3):
    opt.zero_grad()
    net(torch.randn(4, 8)).pow(2).mean().backward()
    if rank == 1:
        net.module.bias.grad = None  # gradients_differ
    opt.step()
dist.destroy_process_group()
