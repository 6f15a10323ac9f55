"""The forward goes past DistributedDataParallel.

Found: gradients_differ
Says: as the model is called past DistributedDataParallel
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

data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))

loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
net = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    loss = (net.module(x) - y).pow(2).mean()  # gradients_differ
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
