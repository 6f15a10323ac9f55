"""A rank whose loss is not finite skips its backward pass.

Ranks: 3
Told: torch.isfinite(loss)
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    scale = float("nan") if rank == 2 and step == 2 else 1.0  # right: scale = 1.0
    loss = model(torch.ones(2, 4) * scale).sum()
    if not torch.isfinite(loss):  # cause
        optimizer.zero_grad()
        continue
    loss.backward()
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
