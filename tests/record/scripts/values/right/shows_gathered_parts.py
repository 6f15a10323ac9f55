"""Gathered parts are shown and added to what is logged, and the loss has a term of no graph."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


def gather(own):
    parts = [torch.empty_like(own) for _ in range(world)]
    dist.all_gather(parts, own)
    return torch.cat(parts)


net = DDP(nn.Linear(8, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
floor, shown = torch.tensor(0.5), 0.0
for step in range(3):
    f = net(torch.randn(4, 8))
    loss = f.pow(2).mean() + floor
    every = gather(f)
    shown = shown + every.std()
    opt.zero_grad()
    loss.backward()
    opt.step()
    loss = gather(loss.reshape(1)).mean() + shown
dist.destroy_process_group()
