"""DDP is told to reduce the last microbatch when the forward pass is over.

Found: gradients_differ
Says: set `require_backward_grad_sync` before the forward pass of each microbatch
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
    opt.zero_grad()
    for micro in range(2):
        loss = net(torch.randn(4, 8)).pow(2).mean() / 2
        net.require_backward_grad_sync = micro == 1
        loss.backward()  # gradients_differ
    opt.step()
dist.destroy_process_group()
