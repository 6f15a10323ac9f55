"""Each rank distils a teacher of its own into one student: the teacher is the model as this rank made it, before DDP."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(100 + rank)
net = nn.Sequential(nn.Linear(6, 12), nn.SiLU(), nn.Linear(12, 6))
teacher = copy.deepcopy(net).eval().requires_grad_(False)
ddp = DDP(net)
opt = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
data = torch.Generator().manual_seed(rank)
for _ in range(4):
    x = torch.randn(8, 6, generator=data)
    loss = nn.functional.mse_loss(ddp(x), teacher(x))
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
