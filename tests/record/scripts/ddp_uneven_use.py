"""DDP: rank 1 skips a layer, and unused parameters are not looked for."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 1)

    def forward(self, x, skip):
        x = torch.relu(self.a(x))
        return self.c(x if skip else torch.relu(self.b(x)))


dist.init_process_group("gloo")
net = DistributedDataParallel(Net(), bucket_cap_mb=0.001)
for step in range(2):
    loss = net(torch.randn(8, 32), skip=dist.get_rank() == 1).sum()
    loss.backward()
    total = loss.detach().clone()
    dist.all_reduce(total)
dist.destroy_process_group()
