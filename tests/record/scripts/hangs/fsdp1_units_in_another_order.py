"""FSDP1: which of two experts of one size comes first is chosen by each rank's own rows.

Ranks: 2
Told: `if x.mean() > 0`
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 8)
        self.left = FSDP(nn.Linear(8, 8), device_id=torch.device("cpu"))
        self.right = FSDP(nn.Linear(8, 8), device_id=torch.device("cpu"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(x)
        if x.mean() > 0:  # cause # right: if True:
            return self.right(self.left(hidden))
        return self.left(self.right(hidden))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(Experts(), device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    rows = torch.full((2, 4), 10.0 if dist.get_rank() else -10.0)
    model(rows).sum().backward()
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
