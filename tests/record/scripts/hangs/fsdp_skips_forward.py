"""With FSDP a rank whose batch is empty skips the step.

Ranks: 2
Told: if len(rows) == 0
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    rows = torch.randn(0 if rank == 1 and step == 1 else 2, 4)  # right: rows = torch.randn(2, 4)
    if len(rows) == 0:  # cause
        continue
    optimizer.zero_grad()
    model(rows).sum().backward()
    optimizer.step()
total = torch.ones(1)
dist.all_reduce(total)
dist.destroy_process_group()
