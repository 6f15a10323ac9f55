"""The best weights are kept by a rank's own score, and each rank loads its own choice.

Found: replicas_differ
Says: each rank loads a state (line 31)
"""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = DDP(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)))
opt = torch.optim.Adam(net.parameters(), lr=0.05)
g = torch.Generator().manual_seed(rank)
best, kept = 1e9, None
for step in range(6):
    x = torch.randn(16, 5, generator=g)
    opt.zero_grad()
    (net(x) - x.sum(1, keepdim=True)).square().mean().backward()
    opt.step()
    with torch.no_grad():
        v = torch.randn(8, 5, generator=g)
        score = (net.module(v) - v.sum(1, keepdim=True)).square().mean().item()
    if score < best:
        best, kept = score, copy.deepcopy(net.module.state_dict())
net.module.load_state_dict(kept)  # replicas_differ
x = torch.randn(16, 5, generator=g)
opt.zero_grad()
(net(x) - x.sum(1, keepdim=True)).square().mean().backward()
opt.step()
dist.destroy_process_group()
