"""Parameters are unfrozen by a config which one node has in an older version.

Ranks: 2
Told: `for adapter in self.adapters`
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
config = {"adapters": 2} if rank == 0 else {"adapters": 1}  # right: config = {"adapters": 2}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.adapters = nn.ModuleList(nn.Linear(4, 4) for _ in range(config["adapters"]))  # cause

    def forward(self, x):
        x = self.body(x)
        for adapter in self.adapters:  # cause
            x = x + adapter(x)
        return x


net = Net()
for adapter in net.adapters:
    fully_shard(adapter)
fully_shard(net)
for step in range(2):
    net(torch.ones(2, 4)).mean().backward()
dist.barrier()
dist.destroy_process_group()
