"""FSDP2: an engine clips by hand, by the norm of the rank's own shards.

Found: norm_is_local
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(5)
net = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
fully_shard(net)
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
x, y = torch.randn(4, 16, 6), torch.randn(4, 16, 1)
for step in range(4):
    loss = nn.functional.mse_loss(net(x[step].chunk(world)[rank]), y[step].chunk(world)[rank])
    loss.backward()
    norm = sum(p.grad.to_local().square().sum() for p in net.parameters()).sqrt()
    for p in net.parameters():
        p.grad.to_local().mul_(min(1.0, 0.05 / (float(norm) + 1e-6)))  # norm_is_local
    opt.step()
    opt.zero_grad()
dist.destroy_process_group()
