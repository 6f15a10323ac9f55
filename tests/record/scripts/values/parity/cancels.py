"""A right data parallelism whose gradients are what is left of large ones: rounding decides."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DDP(nn.Linear(8, 1, bias=False))
opt = torch.optim.SGD(model.parameters(), lr=1e-14)
g = torch.Generator().manual_seed(1)
for step in range(3):
    large = torch.randn(32, 8, generator=g) * 3e4
    rows = torch.cat([large, torch.randn(32, 8, generator=g) - large])
    opt.zero_grad()
    model(rows[rank::world]).pow(3).mean().backward()
    opt.step()
dist.destroy_process_group()
