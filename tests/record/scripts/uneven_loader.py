"""DDP where rank 3's loader is a batch shorter, then metrics are gathered."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
net = DistributedDataParallel(nn.Linear(8, 1))
batches = 3 if dist.get_rank() == 3 else 4
for step in range(batches):
    net(torch.randn(4, 8)).sum().backward()
metrics = [None] * dist.get_world_size()
dist.all_gather_object(metrics, {"loss": 1.0})
dist.destroy_process_group()
