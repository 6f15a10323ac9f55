"""DDP: a head is used on some ranks alone, and unused parameters are not looked for.

Ranks: 2
Told: extra.weight
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.extra = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, more: bool) -> torch.Tensor:
        x = self.body(x)
        return self.extra(x) if more else x


dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(Model())  # right: model = DDP(Model(), find_unused_parameters=True)
for step in range(3):
    more = rank == 0 or step == 0
    loss = model(torch.ones(2, 4), more).sum()  # cause
    loss.backward()  # cause
dist.barrier()
dist.destroy_process_group()
