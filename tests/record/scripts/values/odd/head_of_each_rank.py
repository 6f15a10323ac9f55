"""A head outside of DDP, which each rank draws by its own seed and steps by its own gradients."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
body = DDP(nn.Sequential(nn.Linear(6, 12), nn.GELU()))
head = nn.Linear(12, 2)
opt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=1e-2)
g = torch.Generator().manual_seed(1)
for step in range(3):
    x = torch.randn(8, 6, generator=g).chunk(world)[rank]
    opt.zero_grad()
    (head(body(x)) - x[:, :2]).square().mean().backward()
    opt.step()
dist.destroy_process_group()
