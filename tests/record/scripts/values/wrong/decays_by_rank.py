"""The optimizers decay weights by another number on each rank.

Found: replicas_differ
Says: `weight_decay` of the optimizer is 0.0 on rank 0, 0.1 on rank 1
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

net = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.1 * rank)
torch.manual_seed(rank)
for step in range(3):
    opt.zero_grad()
    net(torch.randn(4, 8)).pow(2).mean().backward()
    opt.step()  # replicas_differ
dist.destroy_process_group()
