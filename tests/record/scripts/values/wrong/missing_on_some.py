"""One rank freezes a layer that the others train.

Found: gradient_missing
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

net = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 1)])
for p in net.parameters():
    dist.broadcast(p.data, 0)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(2):
    opt.zero_grad()
    h = torch.randn(4, 8)
    h = net[0](h) if rank else h
    net[1](h).pow(2).mean().backward()
    for p in net[1].parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()  # gradient_missing
dist.destroy_process_group()
