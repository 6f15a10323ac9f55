"""DDP with static_graph: the auxiliary loss begins with a step that each rank counts itself.

Ranks: 2
Told: if self.seen >= 2
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 2)
        self.aux = torch.nn.Linear(4, 2)
        self.seen = 0

    def forward(self, x):
        h = self.body(x)
        self.seen += 2 if rank == 1 else 1  # right: self.seen += 2
        out = self.head(h).sum()
        if self.seen >= 2:  # cause
            out = out + self.aux(h).sum()
        return out


model = DDP(Net(), static_graph=True)
for step in range(3):
    model(torch.ones(2, 4)).backward()  # cause
dist.barrier()
dist.destroy_process_group()
