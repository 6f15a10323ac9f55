"""The data of rank 1 has a zero that a logarithm meets.

Found: first_nan
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


class Log(nn.Module):
    def forward(self, x):
        return x.log()


net = DDP(nn.Sequential(Log(), nn.Linear(8, 1)))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(2):
    x = torch.rand(4, 8) + 0.1
    if rank == 1 and step == 1:
        x[0, 0] = -1.0
    opt.zero_grad()
    net(x).pow(2).mean().backward()  # first_nan
    opt.step()
dist.destroy_process_group()
