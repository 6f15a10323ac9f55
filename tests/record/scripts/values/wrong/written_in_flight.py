"""A gradient is divided while its all_reduce is under way.

Found: touched_in_flight
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

net = nn.Linear(8, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(3):
    opt.zero_grad()
    net(torch.randn(4, 8)).pow(2).mean().backward()
    works = []
    for p in net.parameters():
        works.append(dist.all_reduce(p.grad, async_op=True))  # touched_in_flight
        p.grad /= world
    for work in works:
        work.wait()
    opt.step()
dist.destroy_process_group()
