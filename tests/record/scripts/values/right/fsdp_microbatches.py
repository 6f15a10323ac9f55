"""FSDP2 reduces the last of four microbatches, with what the others left."""

import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(6)
net = nn.Sequential(nn.Linear(12, 24), nn.SiLU(), nn.Linear(24, 12))
for module in (net[0], net[2], net):
    fully_shard(module)
opt = torch.optim.SGD(net.parameters(), lr=0.05)
rows = torch.Generator().manual_seed(40)
for step in range(2):
    batch = torch.randn(24, 12, generator=rows)
    for micro in range(4):
        net.set_requires_gradient_sync(micro == 3)
        x = batch[micro * 6 : micro * 6 + 6].chunk(world)[rank]
        ((net(x) - x).square().mean() / 4).backward()
    opt.step()
    opt.zero_grad()
