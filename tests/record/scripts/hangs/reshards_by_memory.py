"""A rank with more memory keeps what FSDP2 gathers; the others gather again in backward.

Ranks: 2
Told: FSDP shards the unit 1 with another `reshard_after_forward`: True on rank 0; False on rank 1
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

FREE_GB = {0: 30.0, 1: 71.0}

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)])
is_small = FREE_GB[rank] < 64  # cause # right: is_small = min(FREE_GB.values()) < 64
for block in model:
    fully_shard(block, reshard_after_forward=is_small)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
