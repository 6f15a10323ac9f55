"""The last microbatch is under no_sync as well.

Found: gradients_differ
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

net = DDP(nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(3):
    opt.zero_grad()
    for micro in range(2):
        with net.no_sync():
            (net(torch.randn(4, 8)).pow(2).mean() / 2).backward()
    opt.step()  # gradients_differ
dist.destroy_process_group()
