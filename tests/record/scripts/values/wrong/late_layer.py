"""A layer is put on after the optimizer has taken its list.

Found: parameter_not_wrapped
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

net = nn.Sequential(nn.Linear(8, 8))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net.append(nn.Linear(8, 1))
torch.manual_seed(rank)
for step in range(2):
    opt.zero_grad()
    net(torch.randn(4, 8)).pow(2).mean().backward()  # parameter_not_wrapped
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
dist.destroy_process_group()
