"""Gradients of two microbatches are reduced in one bucket; its argument is a mistake."""

import sys, torch, torch.distributed as dist
from torch import nn

how = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(77)
net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
rows = torch.Generator().manual_seed(1)


def reduce_bucket():
    grads = [p.grad for p in net.parameters()]
    bucket = torch.cat([g.reshape(-1) for g in grads])
    dist.all_reduce(bucket)
    at = 0
    for g in grads:
        g.copy_(bucket[at : at + g.numel()].view_as(g) / world)
        at += g.numel() - (how == "shifted" and world > 1 and g.dim() == 1)


for step in range(3):
    opt.zero_grad()
    for micro in range(2):
        x = torch.randn(8, 6, generator=rows).chunk(world)[rank]
        loss = net(x).square().mean() / 2
        if how == "times":
            loss = loss * world
        loss.backward()
        if how == "again":
            for p in net.parameters():
                dist.all_reduce(p.grad)
    if how == "clip":
        nn.utils.clip_grad_norm_(net.parameters(), 0.01)
    if how != "again":
        reduce_bucket()
    if how == "late":
        (net(x)[:, 0].square().mean() * 0.1).backward()
    opt.step()
