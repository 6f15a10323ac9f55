"""All data-parallel ranks draw one and the same dropout mask.

Found: same_mask
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

net = DDP(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1)))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
data = torch.Generator().manual_seed(rank)
for step in range(2):
    x = torch.randn(4, 8, generator=data)
    opt.zero_grad()
    net(x).pow(2).mean().backward()  # same_mask
    opt.step()
dist.destroy_process_group()
