"""Rank 0 alone consolidates the optimizer's state.

Ranks: 2
Told: if i == 1 and dist.get_rank() == 0
"""

import torch
import torch.distributed as dist
from torch import nn

from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


class Experiment:
    def __init__(self):
        self.model = DDP(nn.Linear(4, 4))
        self.opt = ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.Adam, lr=1e-2)

    def step(self):
        self.opt.zero_grad()
        self.model(torch.ones(2, 4)).sum().backward()
        self.opt.step()

    def snapshot(self):
        self.opt.consolidate_state_dict(to=0)
        return {
            "model": self.model.state_dict(),
            "opt": self.opt.state_dict() if dist.get_rank() == 0 else None,
        }


dist.init_process_group("gloo")
exp = Experiment()
for i in range(3):
    exp.step()
    if i == 1 and dist.get_rank() == 0:  # cause  # right: if i == 1:
        snap = exp.snapshot()
dist.barrier()
dist.destroy_process_group()
