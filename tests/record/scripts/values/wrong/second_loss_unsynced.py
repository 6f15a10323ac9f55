"""A second loss is passed back under no_sync, after the reduction.

Found: gradients_differ
Says: a later backward pass adds gradients that nothing has synchronised
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
    with net.no_sync():
        (0.1 * net(torch.randn(4, 8)).mean()).backward()  # gradients_differ
    opt.step()
dist.destroy_process_group()
