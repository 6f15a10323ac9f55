"""Adapters come into a model after FSDP2 has sharded it.

Found: gradients_differ
Says: as FSDP took its list before
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Adapted(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, 2, bias=False)  # gradients_differ
        self.up = nn.Linear(2, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def adapt(net):
    for at in (0, 2):
        net[at] = Adapted(net[at])


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(44)
net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
fully_shard(net)
adapt(net)
opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-2)
for step in range(3):
    x = torch.randn(8, 6).chunk(world)[rank]
    opt.zero_grad()
    net(x).pow(2).mean().backward()
    opt.step()
dist.destroy_process_group()
