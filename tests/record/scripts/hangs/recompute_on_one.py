"""Activations are recomputed where a rank's input is long, and the recomputed layer communicates.

Ranks: 2
Told: `if length > 32`
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

dist.init_process_group("gloo")
rank = dist.get_rank()


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 4)

    def forward(self, x):
        load = x.detach().sum(0)
        dist.all_reduce(load)  # cause
        return self.gate(x) * torch.sigmoid(load)


router = Router()
lengths = [[16, 16], [16, 64]][rank]
for length in lengths:
    x = torch.ones(length, 4, requires_grad=True)
    if length > 32:  # cause  # right: if length > 100:
        out = checkpoint(router, x, use_reentrant=False)  # cause
    else:
        out = router(x)
    out.mean().backward()
    for p in router.parameters():
        dist.all_reduce(p.grad)
dist.destroy_process_group()
