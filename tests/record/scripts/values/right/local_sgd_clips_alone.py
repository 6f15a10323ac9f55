"""Local SGD with DDP's model left out, clipping by each rank's own norm, weights averaged each third step as one flat vector."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grad_norm_, parameters_to_vector, vector_to_parameters

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
g = torch.Generator().manual_seed(rank + 1)
for step in range(7):
    x = torch.randn(8, 6, generator=g)
    opt.zero_grad()
    (net(x) - x.sum(1, keepdim=True)).square().mean().backward()
    clip_grad_norm_(net.parameters(), 0.5)
    opt.step()
    if step % 3 == 2:
        flat = parameters_to_vector(net.parameters()).detach()
        dist.all_reduce(flat)
        vector_to_parameters(flat / world, net.parameters())
dist.destroy_process_group()
