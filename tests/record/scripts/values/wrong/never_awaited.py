"""The reduction of the second bucket of gradients is never waited for.

Found: touched_in_flight
"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(5)
net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
x, y = torch.randn(4, 16, 64), torch.randn(4, 16, 1)
for step in range(4):
    loss = nn.functional.mse_loss(net(x[step].chunk(world)[rank]), y[step].chunk(world)[rank])
    opt.zero_grad()
    loss.backward()
    first, second = (
        torch.cat([p.grad.flatten() for p in m.parameters()]) for m in (net[2], net[0])
    )
    work = dist.all_reduce(first, async_op=True)
    dist.all_reduce(second, async_op=True)  # touched_in_flight
    work.wait()
    for module, flat in ((net[2], first), (net[0], second)):
        for p, part in zip(
            module.parameters(), flat.split([*map(torch.numel, module.parameters())])
        ):
            p.grad.copy_(part.view_as(p) / world)
    opt.step()
dist.destroy_process_group()
