"""The loss is averaged over the ranks before the backward pass, and DDP averages once more.

Found: no_gradient_through
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
    loss = net(torch.randn(4, 8)).pow(2).mean()
    dist.all_reduce(loss)  # no_gradient_through
    loss = loss / world
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
