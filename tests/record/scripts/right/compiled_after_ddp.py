"""A DDP model that is compiled as a whole."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
net = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)))
compiled = torch.compile(net, backend="aot_eager")
for _ in range(3):
    compiled(torch.randn(4, 8)).sum().backward()
dist.barrier()
dist.destroy_process_group()
