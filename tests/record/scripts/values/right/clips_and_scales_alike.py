"""The gradients are clipped, scaled and disturbed alike on all ranks, after the reduction."""

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
    nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    noise = torch.Generator().manual_seed(step)
    for p in net.parameters():
        p.grad /= 2
        p.grad.add_(torch.randn(p.shape, generator=noise) * 0.01)
    opt.step()
dist.destroy_process_group()
