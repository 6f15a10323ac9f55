"""Each rank scales its gradients after they are reduced.

Found: gradients_differ
Says: each rank multiplies them by a number of its own: 1 on rank 0, 0.5 on rank 1
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
    for p in net.parameters():
        p.grad /= 1 + rank  # gradients_differ
    opt.step()
dist.destroy_process_group()
