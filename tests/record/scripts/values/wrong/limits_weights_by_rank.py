"""Each rank limits its weights by another number after a step.

Found: replicas_differ
Says: ranks 0 and 1 write into them after the step before (line 22), and no optimizer does
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
    net(torch.randn(4, 8)).pow(2).mean().backward()  # replicas_differ
    opt.step()
    with torch.no_grad():
        for p in net.parameters():
            p.clamp_(-0.05 * (1 + rank), 0.05 * (1 + rank))
dist.destroy_process_group()
