"""Two trainings at once, each of two ranks: ranks 2 and 3 are data-parallel too."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank = dist.get_rank()
groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
torch.manual_seed(rank // 2)

net = DDP(nn.Linear(8, 1), process_group=groups[rank // 2])
opt = torch.optim.SGD(net.parameters(), lr=0.1)
data = TensorDataset(torch.randn(32, 8))
for (x,) in DataLoader(data, batch_size=4, sampler=DistributedSampler(data, 2, rank % 2)):
    opt.zero_grad()
    net(x).pow(2).mean().backward()
    opt.step()
dist.destroy_process_group()
