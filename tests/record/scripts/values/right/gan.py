"""Two optimizers that take turns."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

make, judge = DDP(nn.Linear(4, 8)), DDP(nn.Linear(8, 1))
of_make = torch.optim.Adam(make.parameters(), lr=1e-2)
of_judge = torch.optim.Adam(judge.parameters(), lr=1e-2)
torch.manual_seed(rank)
for step in range(3):
    real, noise = torch.randn(4, 8), torch.randn(4, 4)
    of_judge.zero_grad()
    (judge(make(noise).detach()).mean() - judge(real).mean()).backward()
    of_judge.step()
    of_make.zero_grad()
    (-judge(make(noise)).mean()).backward()
    of_make.step()
dist.destroy_process_group()
