"""A module writes its own weight in forward, by the batch that it sees.

Found: replicas_differ
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


class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x):
        with torch.no_grad():
            self.weight.mul_(0.9).add_(0.1 * x.mean(0))
        return x * self.weight


net = DDP(nn.Sequential(Centred(), nn.Linear(8, 1)))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(3):
    loss = net(torch.randn(4, 8)).pow(2).mean()  # replicas_differ
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
