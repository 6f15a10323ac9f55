"""ZeRO by hand: an owner steps each parameter and sends it, or the optimizer reduces by itself."""

import sys, torch, torch.distributed as dist
from torch import nn

how = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(7, 9), nn.GELU(), nn.Linear(9, 9), nn.GELU(), nn.Linear(9, 2))
params = [*net.parameters()]


class Reducing(torch.optim.SGD):
    @torch.no_grad()
    def step(self):
        own = [p.grad.clone() for p in params]
        for p in params:
            dist.all_reduce(p.grad)
            p.grad /= 1 if how == "sum" else world
        super().step()
        for p, grad in zip(params, own):
            p.grad = grad


if how in {"inside", "sum"}:
    opt = Reducing(params, lr=0.1)
else:
    dealt = params[:-1] if how == "rest" and world > 1 else params
    opt = torch.optim.AdamW([p for i, p in enumerate(dealt) if i % world == rank], lr=3e-3)
for step in range(3):
    rows = torch.Generator().manual_seed(step)
    net.zero_grad()
    net(torch.randn(8, 7, generator=rows).chunk(world)[rank]).square().mean().backward()
    if how in {"inside", "sum"}:
        opt.step()
        continue
    for p in params:
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
    for i, p in enumerate(params):
        dist.broadcast(p.data, src=i // (len(params) // world) if how == "owner" else i % world)
