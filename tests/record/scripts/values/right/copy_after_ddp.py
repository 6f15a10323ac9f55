"""An average is copied from the model after DDP has sent the weights of rank 0."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
import copy
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(100 + rank)
net = nn.Sequential(nn.Linear(10, 24), nn.SiLU(), nn.Linear(24, 10))
ddp = DDP(net)
ema = copy.deepcopy(net).requires_grad_(False)
opt = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
gen = torch.Generator().manual_seed(50 + rank)
for step in range(5):
    x = torch.randn(8, 10, generator=gen)
    noisy = x + 0.3 * torch.randn(x.shape, generator=gen)
    loss = F.mse_loss(ddp(noisy), x)
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for e, p in zip(ema.parameters(), net.parameters()):
            e.lerp_(p, 0.1)
score = F.mse_loss(ema(x), x).detach()
dist.all_reduce(score)
if rank == 0:
    print(score.item() / world)
dist.destroy_process_group()
