"""ZeRO 1 by hand: rank 0 sends all parameters, also those that rank 1 steps.

Found: parameter_not_wrapped
Says: rank 1 alone steps `0.bias`, `2.bias`, and `broadcast` (line 30) puts back what they were
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(3)
net = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 1))
params = list(net.parameters())
opt = torch.optim.AdamW(params[rank::world], lr=0.01)
g = torch.Generator().manual_seed(5)
for step in range(3):
    x = torch.randn(8, 6, generator=g).chunk(world)[rank]
    y = (x.sum(1, keepdim=True) > 0).float()
    net.zero_grad()
    F.binary_cross_entropy_with_logits(net(x), y).backward()
    for p in params:
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
    for p in params:
        # all of them, from one rank
        dist.broadcast(p.data, src=0)  # parameter_not_wrapped
dist.destroy_process_group()
