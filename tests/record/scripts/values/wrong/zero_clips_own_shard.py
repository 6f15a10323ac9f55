"""ZeRO 2 by hand: each rank clips by the norm of its own shard of the gradient.

Found: norm_is_local
"""

import torch, torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(5)
net = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 6))
n = sum(p.numel() for p in net.parameters())
per = -(-n // world)
master = nn.Parameter(
    nn.functional.pad(parameters_to_vector(net.parameters()).detach(), (0, per * world - n))[
        rank * per : (rank + 1) * per
    ].clone()
)
opt = torch.optim.AdamW([master], lr=1e-2)
for step in range(4):
    x = torch.randn(16, 6)[rank::world]
    net.zero_grad()
    (10 * (net(x) - x).pow(2).mean()).backward()
    grad = nn.functional.pad(
        torch.cat([p.grad.flatten() for p in net.parameters()]), (0, per * world - n)
    )
    mine = torch.empty(per)
    dist.reduce_scatter_tensor(mine, grad)
    master.grad = mine / world
    torch.nn.utils.clip_grad_norm_([master], 0.5)  # norm_is_local
    opt.step()
    full = torch.empty(per * world)
    dist.all_gather_into_tensor(full, master.detach())
    vector_to_parameters(full[:n], net.parameters())
dist.destroy_process_group()
